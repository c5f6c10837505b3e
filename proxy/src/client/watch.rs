//! The watch over a client's socket: one poll operation that lives across requests.
//!
//! While a request is served its firing means that the client left or sent ahead; between requests the same
//! operation announces the next one. Arming it anew for each request and cancelling it at each end would
//! cost two more operations a request. It takes no byte.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::socket::Socket;

/// How far the operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// None is under way.
    Resting,
    /// One is under way.
    Armed,
    /// It found something to read: bytes, or the end.
    Fired,
    /// The socket cannot be polled.
    Failed,
}

/// The watch. It is polled from wherever the session waits, and by nobody else.
pub(super) struct Watch {
    state: Rc<Cell<State>>,
    /// Never ends; made once a connection, so that arming it again allocates nothing.
    operation: RefCell<Pin<Box<dyn Future<Output = ()>>>>,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("state", &self.state.get()).finish_non_exhaustive()
    }
}

/// What the watch saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// Something was there to be read; what was read since may have been all of it.
    Something,
    /// The socket is of no use any more.
    Failure,
}

impl Watch {
    /// A watch that is not armed yet.
    pub(super) fn new(socket: Rc<Socket>) -> Watch {
        let state = Rc::new(Cell::new(State::Resting));
        let operation = Box::pin(poll_again_and_again(socket, Rc::clone(&state)));
        Watch { state, operation: RefCell::new(operation) }
    }

    /// Looks whether it has fired, and arms it if it is not armed.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> Poll<Seen> {
        if self.state.get() == State::Resting {
            self.state.set(State::Armed);
        }
        // It has no end, only states.
        let _ = self.operation.borrow_mut().as_mut().poll(cx);
        match self.state.get() {
            State::Resting | State::Armed => Poll::Pending,
            State::Failed => Poll::Ready(Seen::Failure),
            State::Fired => {
                self.state.set(State::Resting);
                Poll::Ready(Seen::Something)
            }
        }
    }
}

async fn poll_again_and_again(socket: Rc<Socket>, state: Rc<Cell<State>>) {
    loop {
        std::future::poll_fn(|_| match state.get() {
            State::Armed => Poll::Ready(()),
            // Whoever arms it polls it then.
            _ => Poll::Pending,
        })
        .await;
        let polled = socket.readable().await;
        state.set(if polled.is_ok() { State::Fired } else { State::Failed });
    }
}
