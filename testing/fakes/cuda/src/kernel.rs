//! Kernels, which run by their names: the built-in ones by what defines them, and some that tests need.

use crate::call::Result;
use crate::config::Card;
use crate::memory;
use crate::module::Function;
use anyaccel_cuda::sys::{CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_LAUNCH_FAILED};
use anyaccel_kernels::{Builtin, convert, fill_pattern, histogram, random};
use std::ffi::c_void;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A launch with its arguments taken.
pub(crate) struct Launch {
    pub(crate) name: String,
    groups: [u32; 3],
    threads: [u32; 3],
    args: Vec<Vec<u8>>,
}

impl Launch {
    /// Takes the arguments; refuses shapes that no device has.
    ///
    /// # Safety
    /// `params` points to as many pointers as the function has parameters, each valid for its size.
    pub(crate) unsafe fn new(
        function: &Function,
        groups: [u32; 3],
        threads: [u32; 3],
        shared: u32,
        params: *mut *mut c_void,
    ) -> Result<Self> {
        let count = threads.iter().try_fold(1_u32, |all, &threads| all.checked_mul(threads));
        let some = groups.iter().chain(&threads).all(|&size| size > 0);
        let fits = groups[1] <= 65535 && groups[2] <= 65535 && groups[0] <= i32::MAX as u32;
        if !some || !fits || count.is_none_or(|count| count > 1024) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if i64::from(shared) > i64::from(function.shared.load(Ordering::Relaxed)) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let sizes = function.params.as_deref().unwrap_or_default();
        if params.is_null() && !sizes.is_empty() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut args = Vec::with_capacity(sizes.len());
        for (at, &(_, size)) in sizes.iter().enumerate() {
            // SAFETY: this function's contract.
            let bytes = unsafe { std::slice::from_raw_parts(params.add(at).read().cast::<u8>(), size) };
            args.push(bytes.to_vec());
        }
        Ok(Self { name: function.name.clone(), groups, threads, args })
    }

    fn pointer(&self, at: usize) -> Result<u64> {
        let bytes = self.args.get(at).and_then(|arg| arg.as_slice().try_into().ok());
        bytes.map(u64::from_le_bytes).ok_or(CUDA_ERROR_LAUNCH_FAILED)
    }

    /// A place of a built-in: an address and an offset.
    fn place(&self, at: usize) -> Result<u64> {
        Ok(self.pointer(2 * at)?.wrapping_add(self.pointer(2 * at + 1)?))
    }

    fn number(&self, at: usize) -> Result<u32> {
        let bytes = self.args.get(at).and_then(|arg| arg.as_slice().try_into().ok());
        bytes.map(u32::from_le_bytes).ok_or(CUDA_ERROR_LAUNCH_FAILED)
    }
}

/// Memory that a kernel uses at its turn.
fn part<'a>(at: u64, len: u64) -> Result<&'a mut [u8]> {
    let len = usize::try_from(len).map_err(|_| CUDA_ERROR_ILLEGAL_ADDRESS)?;
    if len == 0 {
        return Ok(&mut []);
    }
    if !memory::known(at, len) {
        return Err(CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    // SAFETY: memory of this process that the registry knows; callers order all use of it by streams.
    Ok(unsafe { std::slice::from_raw_parts_mut(at as usize as *mut u8, len) })
}

/// Runs all of a launch.
pub(crate) fn run(launch: &Launch, card: &Card) -> Result {
    let name = launch.name.strip_prefix("anyaccel_").unwrap_or(&launch.name);
    if let Some(builtin) = Builtin::ALL.iter().copied().find(|builtin| builtin.name() == name) {
        return run_builtin(builtin, launch);
    }
    match name {
        // dst, 64 bytes, how many of them
        "write" => {
            let len = launch.number(2)?;
            let bytes = launch.args.get(1).and_then(|bytes| bytes.get(..len as usize));
            part(launch.pointer(0)?, len.into())?.copy_from_slice(bytes.ok_or(CUDA_ERROR_LAUNCH_FAILED)?);
            Ok(())
        }
        // One more in each of `n` words, as far as there are threads.
        "increment" => {
            let threads = u64::from(launch.groups[0]) * u64::from(launch.threads[0]);
            let count = u64::from(launch.number(1)?).min(threads);
            for word in part(launch.pointer(0)?, count * 4)?.as_chunks_mut::<4>().0 {
                *word = u32::from_le_bytes(*word).wrapping_add(1).to_le_bytes();
            }
            Ok(())
        }
        "fault" => Err(CUDA_ERROR_ILLEGAL_ADDRESS),
        "spin" => {
            let until = Duration::from_millis(launch.number(0)?.into());
            let began = std::time::Instant::now();
            while began.elapsed() < until && card.lost.load(Ordering::Acquire) == 0 {
                std::thread::sleep(Duration::from_micros(200));
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn run_builtin(builtin: Builtin, launch: &Launch) -> Result {
    const WRONG: u32 = CUDA_ERROR_LAUNCH_FAILED;
    let params: &[u8] = launch.args.get(2 * builtin.places()).map_or(&[], Vec::as_slice);
    match builtin {
        Builtin::Noop => Ok(()),
        Builtin::FillPattern => {
            let fill_pattern::Params { pattern, len } = fill_pattern::Params::from_bytes(params).map_err(|_| WRONG)?;
            fill_pattern::fill(part(launch.place(0)?, len)?, pattern);
            Ok(())
        }
        Builtin::Convert => {
            let params = convert::Params::from_bytes(params).map_err(|_| WRONG)?;
            let (to, from) = (params.dst_dtype().map_err(|_| WRONG)?, params.src_dtype().map_err(|_| WRONG)?);
            let dst = part(launch.place(0)?, params.count * to.size() as u64)?;
            let src = part(launch.place(1)?, params.count * from.size() as u64)?;
            convert::convert(to, dst, from, src).map_err(|_| WRONG)
        }
        Builtin::Histogram => {
            let histogram::Params { len } = histogram::Params::from_bytes(params).map_err(|_| WRONG)?;
            let mut counts = [0_u64; 256];
            histogram::reference::count(part(launch.place(1)?, len)?, &mut counts);
            let totals = part(launch.place(0)?, 2048)?;
            for (total, count) in totals.as_chunks_mut::<8>().0.iter_mut().zip(counts) {
                *total = u64::from_le_bytes(*total).wrapping_add(count).to_le_bytes();
            }
            Ok(())
        }
        _ => {
            let fill = random::Fill::from_bytes(builtin, params).map_err(|_| WRONG)?;
            let cell: &[u8] = if fill.cell_len() == 0 { &[] } else { part(launch.place(1)?, fill.cell_len())? };
            let dst = part(launch.place(0)?, fill.destination_len())?;
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
