//! Private pools of device memory.

use crate::pointer::Out;
use crate::result::call;
use crate::runtime::device;
use crate::state;
use crate::types::*;
use face::Runtime;

/// Makes a private pool: memory that is taken in its scope shares no segment with other memory. Starts the runtime.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn anyaccel_pool_create(device_or_current: i32, pool: *mut anyaccel_pool_id) -> anyaccel_result {
    call(|| {
        // SAFETY: C1 is this function's condition.
        let out = unsafe { Out::new(pool, "pool")? };
        let made = Runtime::global().mem_pool(device(device_or_current))?;
        let (first, second) = made.id();
        state::tables().keep_pool(made);
        out.put(anyaccel_pool_id { first, second });
        Ok(())
    })
}

/// Destroys a pool. Memory taken from it lives on; what is unused goes back to the device at the next anyaccel_empty_cache().
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_pool_destroy(pool: anyaccel_pool_id) -> anyaccel_result {
    call(|| state::tables().forget_pool(pool))
}

/// From now on what this thread takes on the pool's device comes from the pool, until anyaccel_pool_end(). Of nested pools the
/// innermost takes it.
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_pool_begin(pool: anyaccel_pool_id) -> anyaccel_result {
    call(|| state::tables().with_pool(pool, |pool| Ok(pool.begin()?)))
}

/// Ends the scope that anyaccel_pool_begin() began.
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_pool_end(pool: anyaccel_pool_id) -> anyaccel_result {
    call(|| state::tables().with_pool(pool, |pool| Ok(pool.end()?)))
}
