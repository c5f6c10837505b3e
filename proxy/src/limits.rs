//! Every bound of the product, with its reason. Nothing grows without one of these.

// ---- HTTP heads and chunks ----

/// Fields any head may have, whatever the configured limit: the parser's table lives on the stack.
pub const HEAD_FIELDS_CEILING: usize = 128;
