//! How much memory the process has, as the kernel counts it. It knows nothing of who has it.

/// Bytes of a page where Linux runs this: what `/proc/self/statm` counts in.
const PAGE_BYTES: u64 = 4096;

/// Resident bytes of this process; 0 where the kernel does not tell.
pub fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * PAGE_BYTES
}
