//! What tests do to a fake that is loaded: lose a card, heal it, make calls fail.

use crate::config::config;
use crate::schedule;
use anyaccel_cuda::sys::{CUDA_ERROR_ILLEGAL_ADDRESS, Code};
use std::ffi::{CStr, c_char};

/// The code that this call is to fail with, if it is its turn. Codes from 700 on lose the current card as well.
pub(crate) fn injected(name: &str) -> Option<Code> {
    let code = config().failures.turn(name);
    if let Some(code @ 700..800) = code
        && let Ok(context) = crate::context::current_even_if_lost()
    {
        schedule::lose(context.card, code);
    }
    code
}

/// Makes the n-th call of that name from now on (1 is the next) fail with a code.
///
/// # Safety
/// `name` is a C string.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "exported by its name")]
pub unsafe extern "C" fn anyaccel_fake_cuda_fail(name: *const c_char, nth: u32, code: u32) {
    // SAFETY: this function's contract.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    config().failures.order(name, nth, code);
}

/// Loses the card at that place of the bus, as by an illegal access.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "exported by its name")]
pub extern "C" fn anyaccel_fake_cuda_lose(place: u32) {
    if let Some(card) = config().cards.get(place as usize) {
        schedule::lose(card, CUDA_ERROR_ILLEGAL_ADDRESS);
    }
}

/// Makes all cards work again and forgets ordered failures. The real driver needs a new process for that.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "exported by its name")]
pub extern "C" fn anyaccel_fake_cuda_heal() {
    config().failures.forget();
    for card in &config().cards {
        schedule::heal(card);
    }
}
