//! What a launch of a built-in comes to on a device.

use crate::random::{self, CELL_SIZE, Layout};
use crate::{Arguments, Builtin, KernelError, convert, fill_pattern, histogram};
use anyaccel_hal::{Arg, DType};

/// Threads of a group, where the device has as many.
const THREADS: u32 = 256;

/// Bytes that a group of a histogram should have to count, so that its 256 additions at the end don't count.
const HISTOGRAM_SHARE: u64 = 1 << 14;

/// The most bytes that a group of a histogram counts: its counters have 32 bits.
const HISTOGRAM_MOST: u64 = 1 << 31;

/// What a plan has to know of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// The most threads of a group, at least 1.
    pub max_threads: u32,
    /// As many groups as keep the device busy, at least 1: on a GPU some 16 for each multiprocessor, on a CPU a few for each core.
    /// A launch has no more, as the threads go on with further elements.
    pub groups: u32,
    /// Whether it computes in double precision. Only random float64 needs it.
    pub fp64: bool,
}

/// A launch of a built-in whose parameters were found valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Groups along x, at least 1.
    pub groups: u32,
    /// Threads of a group along x, at least 1.
    pub threads: u32,
    /// Bytes that the launch touches of each place, in order; 0 for a place that it does not have or touch.
    pub touched: [u64; 2],
    /// What the first place is aligned to: 8 for [`Builtin::Histogram`], else 1.
    pub alignment: u64,
}

/// Checks the parameter bytes of a launch, and says how a device does it best. It never panics, allocates or locks.
///
/// # Errors
/// What the built-in's own parameters refuse; [`KernelError::NoDouble`].
pub fn plan(builtin: Builtin, params: &[u8], device: Device) -> Result<Plan, KernelError> {
    // Items are what a thread works on at a time.
    let (items, touched) = match builtin {
        Builtin::Noop if params.is_empty() => (1, [0; 2]),
        Builtin::Noop => return Err(KernelError::ParamsSize { kernel: builtin, given: params.len() }),
        Builtin::FillPattern => {
            let len = fill_pattern::Params::from_bytes(params)?.len;
            (len.div_ceil(16), [len, 0])
        }
        Builtin::Convert => {
            let params = convert::Params::from_bytes(params)?;
            let bytes = |dtype: DType| params.count.saturating_mul(dtype.size() as u64);
            (params.count, [bytes(params.dst_dtype()?), bytes(params.src_dtype()?)])
        }
        Builtin::Histogram => {
            let len = histogram::Params::from_bytes(params)?.len;
            let groups = len.div_ceil(HISTOGRAM_SHARE).min(device.groups.into()).max(len.div_ceil(HISTOGRAM_MOST));
            return Ok(Plan { alignment: 8, ..shape(groups, u32::MAX, device, [256 * 8, len]) });
        }
        _ => {
            let fill = random::Fill::from_bytes(builtin, params)?;
            if fill.dtype() == DType::F64 && !device.fp64 {
                return Err(KernelError::NoDouble { kernel: builtin });
            }
            let count = fill.params().count;
            let items = match fill.draw().layout {
                // A shuffle is the work of one group; its elements are then written by all of its threads.
                _ if builtin == Builtin::RandomPermutation && count <= random::permutation::SMALL => 1,
                _ if builtin == Builtin::RandomPermutation => count,
                Layout::Portable | Layout::TorchCuda { .. } => count.div_ceil(fill.per_call()),
            };
            let cell = if fill.cell_len() == 0 { 0 } else { CELL_SIZE };
            (items, [fill.destination_len(), cell])
        }
    };
    let threads = u64::from(threads(device));
    Ok(shape(items.div_ceil(threads), device.groups, device, touched))
}

/// A launch of a built-in that was found valid, with its arguments.
#[derive(Clone, Copy, Debug)]
pub struct Planned<'a> {
    /// How the device does it.
    pub plan: Plan,
    /// What it was given: each place as long as the launch touches, if not longer.
    pub arguments: Arguments<'a>,
}

/// Checks the arguments of a launch, and says how a device does it best.
///
/// # Errors
/// [`KernelError::Arguments`]; those of [`plan`]; [`KernelError::PlaceLength`].
pub fn planned<'a>(builtin: Builtin, args: &[Arg<'a>], device: Device) -> Result<Planned<'a>, KernelError> {
    let arguments = builtin.arguments(args)?;
    let plan = plan(builtin, arguments.params, device)?;
    for (&(_, given), touched) in arguments.places.iter().zip(plan.touched) {
        if touched > given {
            return Err(KernelError::PlaceLength { kernel: builtin, given, touched });
        }
    }
    Ok(Planned { plan, arguments })
}

/// The largest power of two that the device has as threads of a group, up to [`THREADS`].
fn threads(device: Device) -> u32 {
    1 << device.max_threads.clamp(1, THREADS).ilog2()
}

fn shape(groups: u64, most: u32, device: Device, touched: [u64; 2]) -> Plan {
    let groups = groups.clamp(1, u64::from(most.max(1))) as u32;
    Plan { groups, threads: threads(device), touched, alignment: 1 }
}
