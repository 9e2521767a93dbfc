//! The built-in kernels, run by the host code of `anyaccel-kernels`.

use crate::schedule::Order;
use crate::stream::{Aligned, LaunchArg};
use anyaccel_hal::{DType, KernelArg, Launch};
use anyaccel_kernels::random::Fill;
use anyaccel_kernels::{Builtin, Split, convert, fill_pattern, histogram, noop};

/// Counts of a histogram, in bytes.
const COUNTS: u64 = 256 * 8;

/// What a launch asks for, read from its parameters.
enum Task {
    Noop,
    Fill(fill_pattern::Params),
    Convert { dst: DType, src: DType, count: u64 },
    Histogram { len: u64 },
    Random(Fill),
}

pub(crate) fn exists(number: u32) -> bool {
    Builtin::from_number(number).is_some()
}

/// What a built-in does with its n-th place; `None` if several launches may add to it at a time.
pub(crate) fn writes(number: u32, place: usize) -> Option<bool> {
    match (Builtin::from_number(number), place) {
        (Some(Builtin::Histogram), 0) | (None, _) => None,
        (Some(_), place) => Some(place == 0),
    }
}

impl Task {
    fn read(number: u32, params: &[u8]) -> Result<Self, String> {
        let builtin = Builtin::from_number(number).ok_or_else(|| format!("no built-in has the number {number}"))?;
        let task = match builtin {
            Builtin::FillPattern => fill_pattern::Params::from_bytes(params).map(Self::Fill),
            Builtin::Histogram => {
                histogram::Params::from_bytes(params).map(|params| Self::Histogram { len: params.len })
            }
            Builtin::Convert => convert::Params::from_bytes(params).and_then(|params| {
                Ok(Self::Convert { dst: params.dst_dtype()?, src: params.src_dtype()?, count: params.count })
            }),
            Builtin::Noop => Ok(Self::Noop),
            random => Fill::from_bytes(random, params).map(Self::Random),
        };
        task.map_err(|error| error.to_string())
    }

    fn split(&self) -> Split {
        match self {
            Self::Noop => noop::split(),
            Self::Fill(params) => fill_pattern::split(params.len),
            Self::Convert { count, .. } => convert::split(*count),
            Self::Histogram { len } => histogram::split(*len),
            Self::Random(fill) => fill.split(),
        }
    }

    /// How long each place must be.
    fn lengths(&self) -> Vec<Option<u64>> {
        match self {
            Self::Noop => vec![],
            // Its cell may be anything where it is not read.
            Self::Random(fill) => vec![Some(fill.destination_len()), Some(fill.cell_len())],
            Self::Fill(params) => vec![Some(params.len)],
            Self::Convert { dst, src, count } => [dst, src].map(|dtype| count.checked_mul(dtype.size() as u64)).into(),
            Self::Histogram { len } => vec![Some(COUNTS), Some(*len)],
        }
    }

    /// Does the part of one group.
    ///
    /// # Safety
    /// The places are valid for [`Task::lengths`], don't overlap, and are this launch's now.
    unsafe fn run(&self, group: u32, places: &[KernelArg]) {
        let range = self.split().range(group);
        let (start, len) = (range.start as usize, (range.end - range.start) as usize);
        if len == 0 {
            return;
        }
        match self {
            Self::Noop => {}
            Self::Fill(params) => {
                // SAFETY: this function's: a part of the first place.
                let part = unsafe { std::slice::from_raw_parts_mut(places[0].ptr.add(start), len) };
                fill_pattern::fill(part, params.pattern);
            }
            Self::Convert { dst, src, .. } => {
                // SAFETY: this function's: the same elements of both places.
                let (to, from) = unsafe {
                    let to = places[0].ptr.add(start * dst.size());
                    let from = places[1].ptr.add(start * src.size());
                    (
                        std::slice::from_raw_parts_mut(to, len * dst.size()),
                        std::slice::from_raw_parts(from, len * src.size()),
                    )
                };
                // The lengths are those of the same number of elements, so this is never refused.
                let _fits = convert::convert(*dst, to, *src, from);
            }
            Self::Random(fill) => {
                let size = fill.dtype().size();
                // SAFETY: this function's: a part of the destination, and the cell.
                let (part, cell) = unsafe {
                    (
                        std::slice::from_raw_parts_mut(places[0].ptr.add(start * size), len * size),
                        std::slice::from_raw_parts(places[1].ptr, fill.cell_len() as usize),
                    )
                };
                // The part has the length of its elements and the cell is whole, so this is never refused.
                let _fits = fill.run(range, part, cell);
            }
            Self::Histogram { .. } => {
                // SAFETY: this function's: a part of the data.
                let data = unsafe { std::slice::from_raw_parts(places[1].ptr.add(start), len) };
                let mut counts = [0; 256];
                histogram::count(data, &mut counts);
                for (value, count) in counts.iter().enumerate() {
                    // SAFETY: this function's: 256 counters of 8 bytes; groups run one after the other here.
                    unsafe {
                        let total = places[0].ptr.add(value * 8).cast::<u64>();
                        total.write_unaligned(total.read_unaligned() + count);
                    }
                }
            }
        }
    }
}

/// H15: whether arguments are those of a built-in.
pub(crate) fn check(number: u32, launch: &Launch, args: &mut [LaunchArg]) -> Result<(), String> {
    let builtin = Builtin::from_number(number).ok_or_else(|| format!("no built-in has the number {number}"))?;
    let params = usize::from(builtin.params_size() > 0);
    if args.len() != builtin.places() + params {
        let (places, given) = (builtin.places(), args.len());
        return Err(format!("{builtin} takes {places} places and its parameters, given {given} arguments"));
    }
    let (places, params) = args.split_at_mut(builtin.places());
    let task = match params {
        [] => Task::read(number, &[])?,
        [LaunchArg::Bytes(params)] => Task::read(number, params.as_slice())?,
        _ => return Err(format!("{builtin}: the last argument is not bytes")),
    };
    for (at, (place, needed)) in places.iter().zip(task.lengths()).enumerate() {
        let needed = needed.ok_or_else(|| format!("{builtin}: place {at} would be longer than 2^64 bytes"))?;
        match place {
            LaunchArg::Span(span) if span.len >= needed => {}
            LaunchArg::Span(span) => {
                return Err(format!("{builtin}: place {at} needs {needed} bytes, has {}", span.len));
            }
            _ => return Err(format!("{builtin}: argument {at} is not a place")),
        }
    }
    let chunks = task.split().chunks();
    if launch.groups[0] < chunks || launch.groups[1] != 1 || launch.groups[2] != 1 {
        return Err(format!("{builtin}: {:?} groups, [{chunks}, 1, 1] needed", launch.groups));
    }
    Ok(())
}

/// Runs the groups of a launch whose arguments were checked.
pub(crate) fn run(number: u32, args: &[KernelArg], params: &Aligned, order: &Order) {
    // What was checked when it was enqueued holds still.
    let Ok(task) = Task::read(number, params.as_slice()) else { return };
    for group in order.iter() {
        // SAFETY: H15 and H4: the lengths were checked, the spans keep their memory; H6: it is this launch's turn. That the
        // places of one launch don't overlap is the caller's by H15.
        unsafe { task.run(group as u32, args) };
    }
}
