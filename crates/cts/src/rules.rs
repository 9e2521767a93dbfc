//! The numbered rules of `anyaccel-hal`, as the list names them.

/// A rule of the contract between engine and backend.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub(crate) number: u8,
    /// What it is about, in a few words.
    pub(crate) text: &'static str,
    /// Why no case can prove it, where none can.
    pub(crate) no_case: Option<&'static str>,
}

const fn rule(number: u8, text: &'static str) -> Rule {
    Rule { number, text, no_case: None }
}

/// Every rule, in order.
pub(crate) const RULES: [Rule; 33] = [
    rule(1, "handles passed are live"),
    rule(2, "handles are unique for good"),
    rule(3, "memory is backed, aligned and apart"),
    rule(4, "work stays inside memory that is not freed"),
    rule(5, "host memory is accessed in stream order; enqueueing does not wait"),
    rule(6, "the operations of a stream take effect in order"),
    rule(7, "marks rise, and end behind their work"),
    rule(8, "a stream waits for a mark of another"),
    rule(9, "completed names the highest ended mark"),
    rule(10, "a host thread waits"),
    rule(11, "work goes on without further calls"),
    rule(12, "what is passed by reference is taken at the call"),
    rule(13, "host functions are called once, in order, without locks"),
    rule(14, "fills repeat a pattern"),
    rule(15, "launches that can't be are refused"),
    rule(16, "built-ins compute what is defined"),
    rule(17, "stamps keep the device's time"),
    rule(18, "any call from any thread"),
    rule(19, "a failed call has no effect"),
    rule(20, "a lost device is lost for good, alone"),
    rule(21, "out of memory passes, unsupported stays"),
    rule(22, "discovery starts nothing"),
    rule(23, "opening touches one device"),
    rule(24, "nothing inherited over a fork is touched before start"),
    rule(25, "a driver ends with its last reference"),
    rule(26, "capabilities are constant"),
    rule(27, "pinned memory"),
    rule(28, "copies between devices"),
    rule(29, "virtual memory"),
    rule(30, "gates"),
    rule(31, "a replay is one operation of its stream, its nodes in the order of the list"),
    rule(32, "kernels, telemetry and native events do as they say"),
    rule(33, "failed work has ended, and is told once"),
];
