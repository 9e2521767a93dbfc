//! Naming devices: `host`, `cuda:1`, an index, or this thread's current one.

use crate::error::{Error, Result};
use crate::linked;
use anyaccel_hal::Kind;
use std::fmt;
use std::str::FromStr;

/// A device by name: a kind and maybe an index. A plain value; making one starts nothing and checks nothing.
///
/// Prints and parses as PyTorch's `torch.device` does.
///
/// ```
/// use anyaccel::Device;
/// let device: Device = "host:1".parse()?;
/// assert_eq!((device.kind().name(), device.index()), ("host", Some(1)));
/// assert_eq!(device.to_string(), "host:1");
/// assert!("host:-1".parse::<Device>().is_err());
/// # Ok::<(), anyaccel::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Device {
    kind: Kind,
    index: Option<u32>,
}

impl Device {
    /// A device of a kind, with or without an index.
    pub const fn new(kind: Kind, index: Option<u32>) -> Self {
        Self { kind, index }
    }

    /// Its kind.
    pub const fn kind(self) -> Kind {
        self.kind
    }

    /// Its index, if it has one.
    pub const fn index(self) -> Option<u32> {
        self.index
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.index {
            Some(index) => write!(f, "{}:{index}", self.kind),
            None => write!(f, "{}", self.kind),
        }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Device {
    type Err = Error;

    /// Reads `kind` or `kind:index`; the index is decimal, without sign, blanks or leading zeros.
    fn from_str(text: &str) -> Result<Self> {
        let (name, index) = match text.split_once(':') {
            Some((name, index)) => (name, Some(index)),
            None => (text, None),
        };
        let Some(kind) = linked::kind_named(name) else {
            return Err(Error::UnknownDeviceType { text: text.to_owned(), known: linked::named_kinds() });
        };
        let index = match index {
            None => None,
            Some(digits) => {
                let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
                let leading_zero = digits.len() > 1 && digits.starts_with('0');
                match digits.parse::<u32>() {
                    Ok(index) if plain && !leading_zero => Some(index),
                    _ => return Err(Error::InvalidDeviceString { text: text.to_owned() }),
                }
            }
        };
        Ok(Self { kind, index })
    }
}

/// A device argument: what every function that takes a device accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceArg<'a> {
    /// This thread's current device.
    Current,
    /// A device of the runtime's kind by index.
    Index(i64),
    /// A device; without an index, this thread's current one.
    Device(Device),
    /// The same as text.
    Text(&'a str),
}

impl fmt::Display for DeviceArg<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Current => f.write_str("None"),
            Self::Index(index) => write!(f, "{index}"),
            Self::Device(device) => write!(f, "{device}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl From<()> for DeviceArg<'_> {
    fn from((): ()) -> Self {
        Self::Current
    }
}

impl From<Device> for DeviceArg<'_> {
    fn from(device: Device) -> Self {
        Self::Device(device)
    }
}

impl<'a> From<&'a str> for DeviceArg<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a String> for DeviceArg<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(text)
    }
}

macro_rules! from_integer {
    ($($integer:ty),*) => {$(
        impl From<$integer> for DeviceArg<'_> {
            fn from(index: $integer) -> Self {
                Self::Index(index.into())
            }
        }
    )*};
}
from_integer!(i8, i16, i32, i64, u8, u16, u32);

impl From<usize> for DeviceArg<'_> {
    fn from(index: usize) -> Self {
        Self::Index(i64::try_from(index).unwrap_or(i64::MAX))
    }
}

impl<'a, T: Into<DeviceArg<'a>>> From<Option<T>> for DeviceArg<'a> {
    fn from(device: Option<T>) -> Self {
        device.map_or(Self::Current, Into::into)
    }
}
