//! Kernels, which run by their names: the built-in ones by what defines them, and some that tests need.
//!
//! | name | arguments | does |
//! |---|---|---|
//! | `write` | memory, 64 bytes, how many of them | writes bytes |
//! | `increment` | memory, number of words | one more in each word, as far as there are threads |
//! | `spin` | milliseconds | takes its time |
//! | `fault` | | what none may do |
//!
//! Other names do nothing.

use anyaccel_kernels::{Builtin, convert, fill_pattern, histogram, random};
use std::thread;
use std::time::{Duration, Instant};

/// What a kernel did that none may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It touched what is no memory of the device's.
    Address,
    /// Its arguments make no sense.
    Arguments,
}

/// The memory of a device, as its kernels see it.
pub trait Memory<'a> {
    /// Memory that a kernel writes.
    ///
    /// # Errors
    /// [`Fault::Address`].
    fn target(&self, at: u64, len: u64) -> Result<&'a mut [u8], Fault>;

    /// Memory that a kernel reads.
    ///
    /// # Errors
    /// [`Fault::Address`].
    fn source(&self, at: u64, len: u64) -> Result<&'a [u8], Fault>;
}

/// A launch with its arguments taken.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The name of the kernel, perhaps behind `anyaccel_`.
    pub name: String,
    /// Groups along x, y and z.
    pub groups: [u32; 3],
    /// Threads of a group along x, y and z.
    pub threads: [u32; 3],
    /// The bytes of each argument.
    pub args: Vec<Vec<u8>>,
}

impl Launch {
    fn pointer(&self, at: usize) -> Result<u64, Fault> {
        let bytes = self.args.get(at).and_then(|arg| arg.as_slice().try_into().ok());
        bytes.map(u64::from_le_bytes).ok_or(Fault::Arguments)
    }

    /// A place of a built-in: an address and an offset.
    fn place(&self, at: usize) -> Result<u64, Fault> {
        Ok(self.pointer(2 * at)?.wrapping_add(self.pointer(2 * at + 1)?))
    }

    fn number(&self, at: usize) -> Result<u32, Fault> {
        let bytes = self.args.get(at).and_then(|arg| arg.as_slice().try_into().ok());
        bytes.map(u32::from_le_bytes).ok_or(Fault::Arguments)
    }

    fn kernel(&self) -> &str {
        self.name.strip_prefix("anyaccel_").unwrap_or(&self.name)
    }

    /// If the kernel is `spin`, takes its time, unless the device is lost meanwhile.
    ///
    /// # Errors
    /// [`Fault::Arguments`].
    pub fn spin(&self, lost: impl Fn() -> bool) -> Result<(), Fault> {
        if self.kernel() == "spin" {
            let until = Duration::from_millis(self.number(0)?.into());
            let began = Instant::now();
            while began.elapsed() < until && !lost() {
                thread::sleep(Duration::from_micros(200));
            }
        }
        Ok(())
    }

    /// Runs all of it; but for `spin`, which touches no memory.
    ///
    /// # Errors
    /// What the kernel did that none may do.
    pub fn run<'a>(&self, memory: &impl Memory<'a>) -> Result<(), Fault> {
        let name = self.kernel();
        if let Some(builtin) = Builtin::ALL.iter().copied().find(|builtin| builtin.name() == name) {
            return self.builtin(builtin, memory);
        }
        match name {
            "write" => {
                let len = self.number(2)?;
                let bytes = self.args.get(1).and_then(|bytes| bytes.get(..len as usize));
                let bytes = bytes.ok_or(Fault::Arguments)?;
                memory.target(self.pointer(0)?, len.into())?.copy_from_slice(bytes);
                Ok(())
            }
            "increment" => {
                let threads = u64::from(self.groups[0]) * u64::from(self.threads[0]);
                let count = u64::from(self.number(1)?).min(threads);
                for word in memory.target(self.pointer(0)?, count * 4)?.as_chunks_mut::<4>().0 {
                    *word = u32::from_le_bytes(*word).wrapping_add(1).to_le_bytes();
                }
                Ok(())
            }
            "fault" => Err(Fault::Address),
            _ => Ok(()),
        }
    }

    fn builtin<'a>(&self, builtin: Builtin, memory: &impl Memory<'a>) -> Result<(), Fault> {
        const WRONG: Fault = Fault::Arguments;
        let params: &[u8] = self.args.get(2 * builtin.places()).map_or(&[], Vec::as_slice);
        match builtin {
            Builtin::Noop => Ok(()),
            Builtin::FillPattern => {
                let fill_pattern::Params { pattern, len } =
                    fill_pattern::Params::from_bytes(params).map_err(|_| WRONG)?;
                fill_pattern::fill(memory.target(self.place(0)?, len)?, pattern);
                Ok(())
            }
            Builtin::Convert => {
                let params = convert::Params::from_bytes(params).map_err(|_| WRONG)?;
                let (to, from) = (params.dst_dtype().map_err(|_| WRONG)?, params.src_dtype().map_err(|_| WRONG)?);
                let dst = memory.target(self.place(0)?, params.count * to.size() as u64)?;
                let src = memory.source(self.place(1)?, params.count * from.size() as u64)?;
                convert::convert(to, dst, from, src).map_err(|_| WRONG)
            }
            Builtin::Histogram => {
                let histogram::Params { len } = histogram::Params::from_bytes(params).map_err(|_| WRONG)?;
                let mut counts = [0_u64; 256];
                histogram::reference::count(memory.source(self.place(1)?, len)?, &mut counts);
                let totals = memory.target(self.place(0)?, 2048)?;
                for (total, count) in totals.as_chunks_mut::<8>().0.iter_mut().zip(counts) {
                    *total = u64::from_le_bytes(*total).wrapping_add(count).to_le_bytes();
                }
                Ok(())
            }
            _ => {
                let fill = random::Fill::from_bytes(builtin, params).map_err(|_| WRONG)?;
                let cell = match fill.cell_len() {
                    0 => &[],
                    len => memory.source(self.place(1)?, len)?,
                };
                let dst = memory.target(self.place(0)?, fill.destination_len())?;
                let split = fill.split();
                let size = fill.dtype().size();
                for chunk in 0..split.chunks() {
                    let range = split.range(chunk);
                    let (from, to) = (range.start as usize * size, range.end as usize * size);
                    fill.run(range, &mut dst[from..to], cell).map_err(|_| WRONG)?;
                }
                Ok(())
            }
        }
    }
}
