//! The phases of a graph and the calls that move it from one to the next.

/// Where a graph is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Phase {
    /// Nothing was captured, or it was reset.
    #[default]
    Idle,
    /// Between begin and end.
    Capturing,
    /// Recorded, not executable yet.
    Captured,
    /// Executable.
    Instantiated,
}

/// What is asked of a graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// To begin a capture.
    Begin,
    /// To end it well.
    End,
    /// To leave it, whatever its state.
    Abort,
    /// To make what was captured executable.
    Instantiate,
    /// To run it; makes it executable first if need be.
    Replay,
    /// To change or look at what was captured.
    Inspect,
    /// To forget everything; leaves a capture that is under way.
    Reset,
}

/// Why a call is refused; the graph is as before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Illegal {
    /// Begin inside begin.
    AlreadyCapturing,
    /// Begin, with something captured that was not reset.
    HasGraph,
    /// End without begin.
    NotCapturing,
    /// It needs something captured.
    NotCaptured,
    /// Not before the capture ends.
    StillCapturing,
}

impl Phase {
    /// The phase after a call.
    ///
    /// # Errors
    /// [`Illegal`] in this phase.
    pub const fn after(self, call: Call) -> Result<Phase, Illegal> {
        Ok(match (call, self) {
            (Call::Reset, _) => Phase::Idle,
            (Call::Begin, Phase::Idle) => Phase::Capturing,
            (Call::Begin, Phase::Capturing) => return Err(Illegal::AlreadyCapturing),
            (Call::Begin, _) => return Err(Illegal::HasGraph),
            (Call::End, Phase::Capturing) => Phase::Captured,
            (Call::End, _) => return Err(Illegal::NotCapturing),
            (Call::Abort, Phase::Capturing) => Phase::Idle,
            (Call::Abort, other) => other,
            (_, Phase::Idle) => return Err(Illegal::NotCaptured),
            (_, Phase::Capturing) => return Err(Illegal::StillCapturing),
            (Call::Instantiate | Call::Replay, _) => Phase::Instantiated,
            (Call::Inspect, same) => same,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_in_every_phase() {
        use Call::*;
        use Phase::*;
        let table: [(Call, [Result<Phase, Illegal>; 4]); 7] = [
            (Begin, [Ok(Capturing), Err(Illegal::AlreadyCapturing), Err(Illegal::HasGraph), Err(Illegal::HasGraph)]),
            (End, [Err(Illegal::NotCapturing), Ok(Captured), Err(Illegal::NotCapturing), Err(Illegal::NotCapturing)]),
            (Abort, [Ok(Idle), Ok(Idle), Ok(Captured), Ok(Instantiated)]),
            (
                Instantiate,
                [Err(Illegal::NotCaptured), Err(Illegal::StillCapturing), Ok(Instantiated), Ok(Instantiated)],
            ),
            (Replay, [Err(Illegal::NotCaptured), Err(Illegal::StillCapturing), Ok(Instantiated), Ok(Instantiated)]),
            (Inspect, [Err(Illegal::NotCaptured), Err(Illegal::StillCapturing), Ok(Captured), Ok(Instantiated)]),
            (Reset, [Ok(Idle); 4]),
        ];
        for (call, expected) in table {
            for (phase, expected) in [Idle, Capturing, Captured, Instantiated].into_iter().zip(expected) {
                assert_eq!(phase.after(call), expected, "{call:?} while {phase:?}");
            }
        }
    }
}
