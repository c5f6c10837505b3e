//! stub
#[derive(Debug)]
pub struct Handle;
impl Handle {
    pub fn join(self) {}
    pub fn drain_now(&self) {}
}
pub fn start(
    shared: &'static crate::published::Published,
    _l: &crate::learn::Handle,
    _a: std::net::TcpListener,
    _s: bool,
) -> std::io::Result<Handle> {
    shared.set_phase(crate::published::Phase::Ready);
    Ok(Handle)
}
