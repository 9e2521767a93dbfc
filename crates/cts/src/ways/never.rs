//! Cases of streams that are not captured, and why: what they are about happens at a call, or in between.

use crate::subject::matches;

/// Why cases of streams are run at once only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct NotCaptured {
    /// Their ids; `*` stands for any text.
    pub pattern: &'static str,
    /// Why.
    pub reason: &'static str,
}

const fn not(pattern: &'static str, reason: &'static str) -> NotCaptured {
    NotCaptured { pattern, reason }
}

const UNDER_WAY: &str = "it is about work that is under way as soon as a call returns, and a capture begins none";
const REFUSED: &str = "the refusal is the call's own, before anything is enqueued";

/// All of them.
const NEVER: &[NotCaptured] = &[
    not("progress.*", UNDER_WAY),
    not("host_fn.no-lock-held", UNDER_WAY),
    not("host_fn.blocked-ones-wait-for-each-other", UNDER_WAY),
    not("order.wait-for-several", "each of its parts is to end by itself, and a graph ends as one operation"),
    not("time.*", "stamps are no nodes of graphs"),
    not("copy.two-host-ends", REFUSED),
    not("write.too-much", REFUSED),
    not("fill.lacking-pattern", REFUSED),
    not("kernels.beyond-limits", REFUSED),
    not("kernels.other-formats", REFUSED),
    not("builtins.wrong-arguments", REFUSED),
];

/// Cases of streams that are run at once only, by patterns.
pub fn not_captured() -> &'static [NotCaptured] {
    NEVER
}

/// Why a case is run at once only, if it is.
pub(crate) fn reason(id: &str) -> Option<&'static str> {
    NEVER.iter().find(|never| matches(never.pattern, id)).map(|never| never.reason)
}
