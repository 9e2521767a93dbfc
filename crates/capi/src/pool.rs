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

/// Gives back memory of one pool that is kept for reuse, after waiting for the work that uses it; both 0 is
/// anyaccel_empty_cache(). The pool may still be in use; one that graphs were captured in keeps its memory as long as they live.
/// Of a pool that is not there: nothing.
#[unsafe(no_mangle)]
pub extern "C" fn anyaccel_pool_empty_cache(pool: anyaccel_pool_id) -> anyaccel_result {
    call(|| Ok(Runtime::global().empty_pool_cache((pool.first, pool.second))?))
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
