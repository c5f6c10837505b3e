//! stub
#[derive(Debug)]
pub struct Handle;
impl Handle {
    pub fn join(self) {}
}
pub fn start(
    shared: &'static crate::published::Published,
    mut w: index::IndexWriter,
) -> std::io::Result<Handle> {
    std::thread::spawn(move || {
        loop {
            while let Some(n) = shared.notes.pop() {
                if let crate::record::Note::Ended(r) = n {
                    if std::env::var_os("SW_DEBUG").is_some() {
                        eprintln!("{r:?}");
                    }
                }
            }
            w.publish(crate::clock::now().millis());
            std::thread::park_timeout(std::time::Duration::from_millis(5));
        }
    });
    Ok(Handle)
}
