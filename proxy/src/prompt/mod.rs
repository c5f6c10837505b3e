//! What routing needs from a request body.
