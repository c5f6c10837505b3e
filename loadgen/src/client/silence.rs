//! Giving up on a request that stays silent, without a timer operation for each event.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

/// One timer per request. It is left running when something arrives and only looks at the clock
/// of the last arrival when it fires.
#[derive(Debug)]
pub(crate) struct Silence {
    limit: Duration,
    timer: Pin<Box<Sleep>>,
}

impl Silence {
    pub(crate) fn new(limit: Duration) -> Silence {
        Silence { limit, timer: Box::pin(sleep(limit)) }
    }

    /// Waits for `future`, but no longer than the limit; `None` when it stayed silent.
    pub(crate) async fn bound<F: Future>(&mut self, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        let since = Instant::now();
        poll_fn(|cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            while self.timer.as_mut().poll(cx).is_ready() {
                if since.elapsed() >= self.limit {
                    return Poll::Ready(None);
                }
                self.timer.as_mut().reset(since + self.limit);
            }
            Poll::Pending
        })
        .await
    }
}

/// Holds a reader to a speed in bytes a second.
#[derive(Debug)]
pub(crate) struct Pace {
    bytes_per_s: u64,
    /// When all bytes read so far may have been read.
    next: Instant,
}

impl Pace {
    pub(crate) fn new(bytes_per_s: u64) -> Pace {
        Pace { bytes_per_s, next: Instant::now() }
    }

    /// Waits as long as `bytes` take at this speed. Time without bytes is not saved up.
    pub(crate) async fn after(&mut self, bytes: usize) {
        let takes = Duration::from_secs_f64(bytes as f64 / self.bytes_per_s as f64);
        self.next = self.next.max(Instant::now()) + takes;
        tokio::time::sleep_until(self.next).await;
    }
}
