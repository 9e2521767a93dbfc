//! Launches, and what kernels see of memory.

use crate::call::Result;
use crate::config::Card;
use crate::memory;
use crate::module::Function;
use anyaccel_cuda::sys::{CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_LAUNCH_FAILED};
use anyaccel_fake::kernels::{Fault, Launch, Memory};
use std::ffi::c_void;
use std::sync::atomic::Ordering;

/// Takes the arguments; refuses shapes that no device has.
///
/// # Safety
/// `params` points to as many pointers as the function has parameters, each valid for its size.
pub(crate) unsafe fn launch(
    function: &Function,
    groups: [u32; 3],
    threads: [u32; 3],
    shared: u32,
    params: *mut *mut c_void,
) -> Result<Launch> {
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
    Ok(Launch { name: function.name.clone(), groups, threads, args })
}

/// The memory that the registry knows.
struct Known;

impl Known {
    fn checked(at: u64, len: u64) -> std::result::Result<usize, Fault> {
        let len = usize::try_from(len).map_err(|_| Fault::Address)?;
        if len == 0 || memory::known(at, len) { Ok(len) } else { Err(Fault::Address) }
    }
}

impl<'a> Memory<'a> for Known {
    fn target(&self, at: u64, len: u64) -> std::result::Result<&'a mut [u8], Fault> {
        match Self::checked(at, len)? {
            0 => Ok(&mut []),
            // SAFETY: memory of this process that the registry knows; callers order all use of it by streams.
            len => Ok(unsafe { std::slice::from_raw_parts_mut(at as usize as *mut u8, len) }),
        }
    }

    fn source(&self, at: u64, len: u64) -> std::result::Result<&'a [u8], Fault> {
        match Self::checked(at, len)? {
            0 => Ok(&[]),
            // SAFETY: as for `target`.
            len => Ok(unsafe { std::slice::from_raw_parts(at as usize as *const u8, len) }),
        }
    }
}

/// Runs all of a launch.
pub(crate) fn run(launch: &Launch, card: &Card) -> Result {
    let done = launch.spin(|| card.lost.load(Ordering::Acquire) != 0).and_then(|()| launch.run(&Known));
    done.map_err(|fault| match fault {
        Fault::Address => CUDA_ERROR_ILLEGAL_ADDRESS,
        Fault::Arguments => CUDA_ERROR_LAUNCH_FAILED,
    })
}
