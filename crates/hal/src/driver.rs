//! Discovery: what there is, why there is none, and opening one.

use crate::device::Device;
use crate::fault::Fault;
use crate::info::DeviceInfo;
use crate::kind::Kind;
use std::sync::Arc;

/// The layers between a process and a device, from the bottom up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Layer {
    /// The native library is found and loads.
    Library = 1,
    /// Its version is one that this backend knows.
    Version = 2,
    /// The kernel's device nodes exist.
    DeviceNodes = 3,
    /// This user may open them.
    Permissions = 4,
    /// The variables that hide devices.
    Mask = 5,
    /// Counting the devices.
    Probe = 6,
}

impl Layer {
    /// The layer in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Library => "library",
            Self::Version => "version",
            Self::DeviceNodes => "device nodes",
            Self::Permissions => "permissions",
            Self::Mask => "mask",
            Self::Probe => "probe",
        }
    }
}

/// Why a kind has no device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Absence {
    /// Something that this layer needs is missing.
    Missing {
        /// Where the search ended.
        layer: Layer,
        /// What was looked for (a library's name, a path).
        subject: String,
        /// What was found instead.
        found: String,
    },
    /// An environment variable that can't be understood.
    BadVariable {
        /// Its name.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it may hold.
        expected: &'static str,
    },
    /// There are devices, and a variable hides them all.
    Masked {
        /// Its name.
        name: &'static str,
        /// Its value.
        value: String,
    },
}

/// What discovery found, without starting anything unless `started`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Probe {
    /// Devices that this process can use, masks applied.
    pub visible: u32,
    /// Devices before masks, if known. More than 0 with none visible ends the search for a kind.
    pub present: Option<u32>,
    /// Why none is visible.
    pub absence: Option<Absence>,
    /// Whether the native runtime had to be started to know, which a later fork does not survive.
    pub started: bool,
}

impl Probe {
    /// That many devices, all visible, nothing started.
    pub const fn found(count: u32) -> Self {
        Self { visible: count, present: Some(count), absence: None, started: false }
    }

    /// None, and why.
    pub const fn absent(absence: Absence) -> Self {
        Self { visible: 0, present: None, absence: Some(absence), started: false }
    }
}

/// How a check went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Verdict {
    /// As it should be.
    Pass = 1,
    /// Works, with something to know.
    Warn = 2,
    /// Ends here.
    Fail = 3,
    /// This kind has no such layer, or an earlier one failed.
    NotApplicable = 4,
}

/// One layer examined, for `anyaccel doctor`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Check {
    /// The layer.
    pub layer: Layer,
    /// How it went.
    pub verdict: Verdict,
    /// What was examined.
    pub subject: String,
    /// What was found.
    pub found: String,
}

/// A kind of device in this process: discovers, opens, and owns what its devices share.
///
/// Constructing one starts nothing (H22, H24).
pub trait Driver: Send + Sync {
    /// The kind. Constant.
    fn kind(&self) -> Kind;

    /// Whether [`Driver::probe`] and [`Driver::describe`] start nothing, whatever they find. Constant.
    fn fork_safe_probe(&self) -> bool;

    /// How many devices there are, or why none. Reads masks anew each time until [`Driver::start`] froze them (H22).
    fn probe(&self) -> Probe;

    /// A device's properties without opening it (H22); `None` where only an open device can tell.
    fn describe(&self, ordinal: u32) -> Option<DeviceInfo>;

    /// Starts the native runtime, freezes the masks and returns the number of devices, maybe 0. A second call returns
    /// the same. A failed start leaves no trace.
    ///
    /// # Errors
    /// The native runtime's fault; `Invalid` for a bad variable, which the probe's [`Absence`] names.
    fn start(&self) -> Result<u32, Fault>;

    /// Opens a device, once started (H23).
    ///
    /// # Errors
    /// `Invalid` for an ordinal out of range, else the native runtime's fault.
    fn open(&self, ordinal: u32) -> Result<Arc<dyn Device>, Fault>;

    /// Whether a new driver of this kind works in a child that was forked after the parent's had started.
    fn restartable(&self) -> bool;

    /// Examines each layer for the doctor. Starts nothing, never panics.
    fn checks(&self) -> Vec<Check>;
}
