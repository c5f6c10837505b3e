//! stub
pub fn run(_a: &crate::cli::DemoArgs) -> Result<(), String> {
    Err("no".into())
}
