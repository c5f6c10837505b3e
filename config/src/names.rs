//! The names the file uses for the choices of [`crate::model`]: read by the checks, written by the
//! effective output, and never spelled anywhere else.

use crate::model::{Kind, Level, LogFormat, Policy, UnknownModel};

macro_rules! names {
    ($type:ident, $count:literal: $($name:literal => $variant:ident),+) => {
        impl $type {
            pub(crate) const NAMES: [(&'static str, Self); $count] =
                [$(($name, Self::$variant)),+];

            /// The value of this name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::NAMES.into_iter().find(|(known, _)| *known == name).map(|(_, value)| value)
            }

            /// Every name, in the order they are documented.
            pub fn names() -> [&'static str; $count] {
                Self::NAMES.map(|(name, _)| name)
            }

            /// The name the file uses.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name),+
                }
            }
        }
    };
}

names!(UnknownModel, 2: "reject" => Reject, "any" => Any);
names!(Kind, 5: "auto" => Auto, "vllm" => Vllm, "sglang" => Sglang, "llamacpp" => LlamaCpp,
    "openai" => OpenAi);
names!(Policy, 9: "round_robin" => RoundRobin, "random" => Random,
    "least_requests" => LeastRequests, "power_of_two" => PowerOfTwo, "ewma" => Ewma,
    "consistent_hash" => ConsistentHash, "session" => Session, "prefix" => Prefix, "cost" => Cost);
names!(LogFormat, 2: "json" => Json, "text" => Text);
names!(Level, 4: "error" => Error, "warn" => Warn, "info" => Info, "debug" => Debug);
