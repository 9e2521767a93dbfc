//! What a graph or a capture refuses.

use crate::device::Device;
use crate::error::ErrorClass;
use anyaccel_engine::graph::Illegal;

/// Why a call about a graph, or one that a capture forbids, was refused. Unless it says so, everything is as before: a
/// capture that is under way stays usable.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// A capture error mode that does not exist.
    #[error("Unknown capture error mode. Expected `default`, `global`, `thread_local`, or `relaxed`, got {got}")]
    UnknownMode {
        /// What was given.
        got: String,
    },
    /// Begin inside begin.
    #[error("capture_begin() called while this graph is capturing; call capture_end() first.")]
    AlreadyCapturing,
    /// Begin on a stream that another graph captures.
    #[error("Stream {stream} of {device} is being captured already, by another graph.")]
    StreamCapturing {
        /// The stream's id.
        stream: u64,
        /// Its device.
        device: Device,
    },
    /// Begin with a captured graph that was not reset.
    #[error(
        "This graph already owns a captured graph. To capture a new one, call reset() first, or create a new instance."
    )]
    HasGraph,
    /// End without begin.
    #[error("capture_end() called before capture_begin().")]
    NotCapturing,
    /// End with another stream current.
    #[error(
        "Capture must end on the same stream it began on. (It began on stream {began} of {began_on}; stream {current} of \
         {current_on} is current.)"
    )]
    WrongStream {
        /// The stream where it began.
        began: u64,
        /// That stream's device.
        began_on: Device,
        /// The stream that is current.
        current: u64,
        /// That stream's device.
        current_on: Device,
    },
    /// A call that needs a captured graph.
    #[error("capture_end() must have been called before calling {call}: this graph holds nothing that was captured.")]
    NotCaptured {
        /// The call.
        call: &'static str,
    },
    /// A call that has to wait until the capture has ended.
    #[error("capture_end() must have been called before calling {call}: this graph is still capturing.")]
    StillCapturing {
        /// The call.
        call: &'static str,
    },
    /// A wait of the host on the thread that captures.
    #[error(
        "{call} can't be called while this thread captures a graph: it would wait, and what is captured only runs when it \
         is replayed. The capture goes on; call it before capture_begin() or after capture_end()."
    )]
    Waits {
        /// The call.
        call: &'static str,
    },
    /// The same on another thread, while a capture forbids it everywhere.
    #[error(
        "{call} can't be called while a graph is captured with capture_error_mode `global`: that forbids waiting on every \
         thread. The capture goes on; `thread_local` forbids it on the capturing thread only."
    )]
    WaitsAnywhere {
        /// The call.
        call: &'static str,
    },
    /// A question to a stream, or a wait for it, while it is captured.
    #[error(
        "{call} can't be called on stream {stream} of {device} while it is captured: its work runs at each replay."
    )]
    CapturedStream {
        /// The call.
        call: &'static str,
        /// The stream's id.
        stream: u64,
        /// Its device.
        device: Device,
    },
    /// A question to an event that was recorded inside a capture.
    #[error("{call}: this event was recorded inside a capture, and serves only waits of streams of that capture.")]
    CapturedEvent {
        /// The call.
        call: &'static str,
    },
    /// A wait, inside a capture, for something outside of it.
    #[error(
        "{call}: a captured stream can't wait for what was recorded outside of its capture. Make it wait before \
         capture_begin(), or record the event inside."
    )]
    OutsideEvent {
        /// The call.
        call: &'static str,
    },
    /// Streams of two captures.
    #[error("{call}: streams of two captures can't wait for each other.")]
    TwoCaptures {
        /// The call.
        call: &'static str,
    },
    /// Work of a forked stream that was not joined. The capture has ended without a graph.
    #[error(
        "Stream {stream} of {device} has captured work that was not joined: make the stream that began the capture wait \
         for it before capture_end(). The capture was given up."
    )]
    Unjoined {
        /// The stream's id.
        stream: u64,
        /// Its device.
        device: Device,
    },
    /// A function that can be called once only.
    #[error(
        "Stream.host_fn can't be captured: its function can be called once, and a graph calls it at each replay. Use \
         host_fn_mut."
    )]
    CalledOnce,
    /// Borrowed memory that would have to live as long as the graph.
    #[error(
        "{call}: {bytes} bytes of borrowed memory can't be captured; up to {limit} bytes travel with the graph. Use pinned \
         memory."
    )]
    Borrowed {
        /// The call.
        call: &'static str,
        /// How many bytes.
        bytes: usize,
        /// The most that is captured with its bytes.
        limit: usize,
    },
    /// An operation that can't be captured on this device.
    #[error("{what} can't be captured on {device}.")]
    NotCapturable {
        /// The operation.
        what: &'static str,
        /// The device.
        device: Device,
    },
    /// A replay on a stream that is captured.
    #[error("A graph can't be replayed on stream {stream} of {device} while that is captured.")]
    ReplayCaptured {
        /// The stream's id.
        stream: u64,
        /// Its device.
        device: Device,
    },
    /// A view of pinned memory that a graph's replays use.
    #[error(
        "This pinned buffer is used by a graph, whose replays may begin at any time. View it by with() or with_mut()."
    )]
    PinnedInGraph,
    /// A replay while pinned memory of the graph is viewed.
    #[error("A pinned buffer of this graph is being viewed; replay it when with() or with_mut() has returned.")]
    Viewed,
    /// A cell that was allocated inside the capture.
    #[error("before_replay() needs memory from outside of the capture: what is allocated inside is reused inside.")]
    CellInside,
    /// More nodes than there are numbers. The capture is invalid.
    #[error("A graph has room for 2^32 - 1 nodes.")]
    TooLarge,
    /// A dump without debug mode.
    #[error("Graph debugging is not enabled; call enable_debug_mode() before debug_dump().")]
    NoDebug,
    /// A dump that could not be written.
    #[error("The graph can't be written to {path}: {cause}.")]
    Dump {
        /// Where to.
        path: String,
        /// Why not.
        cause: String,
    },
    /// A node that does not exist.
    #[error("This graph has no node {node}: it has {count} nodes.")]
    NoNode {
        /// The number.
        node: usize,
        /// How many there are.
        count: usize,
    },
    /// A change of a node that does not fit it.
    #[error("Node {node} ({operation}) can't be updated: {reason}.")]
    Update {
        /// The number.
        node: usize,
        /// What it does.
        operation: String,
        /// Why not.
        reason: String,
    },
    /// A change of a buffer that the graph does not use.
    #[error("The graph does not use the buffer that is to be replaced.")]
    NotUsed,
}

impl GraphError {
    pub(crate) const fn class(&self) -> ErrorClass {
        match self {
            Self::UnknownMode { .. } | Self::NoNode { .. } | Self::Update { .. } | Self::NotUsed => ErrorClass::Value,
            Self::NotCapturable { .. } => ErrorClass::NotImplemented,
            _ => ErrorClass::Runtime,
        }
    }

    /// A call in a phase that has no place for it.
    pub(super) const fn illegal(call: &'static str, illegal: Illegal) -> Self {
        match illegal {
            Illegal::AlreadyCapturing => Self::AlreadyCapturing,
            Illegal::HasGraph => Self::HasGraph,
            Illegal::NotCapturing => Self::NotCapturing,
            Illegal::NotCaptured => Self::NotCaptured { call },
            Illegal::StillCapturing => Self::StillCapturing { call },
        }
    }
}

impl From<GraphError> for crate::error::Error {
    fn from(error: GraphError) -> Self {
        Self::Graph(error)
    }
}
