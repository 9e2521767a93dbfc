//! Kernels, which run by their names: the built-in ones by what defines them, and some that tests need.

use crate::device::Device;
use crate::memory::Memory;
use anyaccel_kernels::{Builtin, convert, fill_pattern, histogram, random};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The bytes of an argument.
pub(crate) type Arg = Vec<u8>;

/// The kernel did what none may do: the device is lost.
#[derive(Debug)]
pub(crate) struct Fault;

/// A launch with its arguments taken.
pub(crate) struct Launch {
    pub(crate) name: String,
    pub(crate) groups: [u32; 3],
    pub(crate) threads: [u32; 3],
    pub(crate) args: Vec<Arg>,
}

/// A launch at its turn: where it runs, and the memory there is.
struct Turn<'a> {
    launch: &'a Launch,
    device: &'a Device,
    memory: &'a Memory,
}

impl Launch {
    fn pointer(&self, at: usize) -> Result<u64, Fault> {
        let bytes = self.args.get(at).and_then(|arg| arg.as_slice().try_into().ok());
        bytes.map(u64::from_le_bytes).ok_or(Fault)
    }

    /// A place of a built-in: an address and an offset.
    fn place(&self, at: usize) -> Result<u64, Fault> {
        Ok(self.pointer(2 * at)?.wrapping_add(self.pointer(2 * at + 1)?))
    }

    fn number(&self, at: usize) -> Result<u32, Fault> {
        let bytes = self.args.get(at).and_then(|arg| arg.as_slice().try_into().ok());
        bytes.map(u32::from_le_bytes).ok_or(Fault)
    }
}

/// Runs all of a launch.
pub(crate) fn run(launch: &Launch, device: &Device) -> Result<(), Fault> {
    let name = launch.name.strip_prefix("anyaccel_").unwrap_or(&launch.name);
    if launch.groups.contains(&0) {
        return Ok(());
    }
    if name == "spin" {
        let until = Duration::from_millis(launch.number(0)?.into());
        let began = std::time::Instant::now();
        while began.elapsed() < until && !device.card.lost.load(Ordering::Acquire) {
            std::thread::sleep(Duration::from_micros(200));
        }
        return Ok(());
    }
    let memory = &crate::memory::read();
    let turn = Turn { launch, device, memory };
    if let Some(builtin) = Builtin::ALL.iter().copied().find(|builtin| builtin.name() == name) {
        return turn.builtin(builtin);
    }
    match name {
        // dst, 64 bytes, how many of them
        "write" => {
            let len = launch.number(2)?;
            let bytes = launch.args.get(1).and_then(|bytes| bytes.get(..len as usize));
            turn.part(launch.pointer(0)?, len.into())?.copy_from_slice(bytes.ok_or(Fault)?);
            Ok(())
        }
        // One more in each of `n` words, as far as there are threads.
        "increment" => {
            let threads = u64::from(launch.groups[0]) * u64::from(launch.threads[0]);
            let count = u64::from(launch.number(1)?).min(threads);
            for word in turn.part(launch.pointer(0)?, count * 4)?.as_chunks_mut::<4>().0 {
                *word = u32::from_le_bytes(*word).wrapping_add(1).to_le_bytes();
            }
            Ok(())
        }
        "fault" => Err(Fault),
        _ => Ok(()),
    }
}

impl<'a> Turn<'a> {
    /// Memory that the kernel writes.
    fn part(&self, at: u64, len: u64) -> Result<&'a mut [u8], Fault> {
        match self.checked(at, len, true)? {
            0 => Ok(&mut []),
            // SAFETY: memory of this process that the registry knows, and that stays while it is read; callers order all
            // use of it by lists and events.
            len => Ok(unsafe { std::slice::from_raw_parts_mut(at as usize as *mut u8, len) }),
        }
    }

    /// Memory that the kernel reads.
    fn source(&self, at: u64, len: u64) -> Result<&'a [u8], Fault> {
        match self.checked(at, len, false)? {
            0 => Ok(&[]),
            // SAFETY: as for `part`.
            len => Ok(unsafe { std::slice::from_raw_parts(at as usize as *const u8, len) }),
        }
    }

    fn checked(&self, at: u64, len: u64, writes: bool) -> Result<usize, Fault> {
        let good = self.memory.usable(at, len, self.device, writes, false);
        if good { usize::try_from(len).map_err(|_| Fault) } else { Err(Fault) }
    }

    fn builtin(&self, builtin: Builtin) -> Result<(), Fault> {
        let launch = self.launch;
        let params: &[u8] = launch.args.get(2 * builtin.places()).map_or(&[], Vec::as_slice);
        match builtin {
            Builtin::Noop => Ok(()),
            Builtin::FillPattern => {
                let fill_pattern::Params { pattern, len } =
                    fill_pattern::Params::from_bytes(params).map_err(|_| Fault)?;
                fill_pattern::fill(self.part(launch.place(0)?, len)?, pattern);
                Ok(())
            }
            Builtin::Convert => {
                let params = convert::Params::from_bytes(params).map_err(|_| Fault)?;
                let (to, from) = (params.dst_dtype().map_err(|_| Fault)?, params.src_dtype().map_err(|_| Fault)?);
                let dst = self.part(launch.place(0)?, params.count * to.size() as u64)?;
                let src = self.source(launch.place(1)?, params.count * from.size() as u64)?;
                convert::convert(to, dst, from, src).map_err(|_| Fault)
            }
            Builtin::Histogram => {
                let histogram::Params { len } = histogram::Params::from_bytes(params).map_err(|_| Fault)?;
                let mut counts = [0_u64; 256];
                histogram::reference::count(self.source(launch.place(1)?, len)?, &mut counts);
                let totals = self.part(launch.place(0)?, 2048)?;
                for (total, count) in totals.as_chunks_mut::<8>().0.iter_mut().zip(counts) {
                    *total = u64::from_le_bytes(*total).wrapping_add(count).to_le_bytes();
                }
                Ok(())
            }
            _ => {
                let fill = random::Fill::from_bytes(builtin, params).map_err(|_| Fault)?;
                let cell: &[u8] =
                    if fill.cell_len() == 0 { &[] } else { self.source(launch.place(1)?, fill.cell_len())? };
                let dst = self.part(launch.place(0)?, fill.destination_len())?;
                let split = fill.split();
                let size = fill.dtype().size();
                for chunk in 0..split.chunks() {
                    let range = split.range(chunk);
                    let (from, to) = (range.start as usize * size, range.end as usize * size);
                    fill.run(range, &mut dst[from..to], cell).map_err(|_| Fault)?;
                }
                Ok(())
            }
        }
    }
}
