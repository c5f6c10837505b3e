//! Every bound of the product, with its reason. Nothing grows without one of these.
