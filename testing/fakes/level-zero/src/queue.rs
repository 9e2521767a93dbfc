//! Queues, which execute lists, and fences, which tell hosts of it.

use crate::abi::*;
use crate::call::{Registry, array, exports, get, put};
use crate::control::alive;
use crate::driver_calls::CONTEXTS;
use crate::lane::{Command, Lane, Order};
use crate::list::live;
use crate::list_calls::{Described, described};
use crate::turn;
use crate::work::Work;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

struct Queue {
    lane: Arc<Lane>,
    waits: bool,
}

pub(crate) struct Fence {
    queue: Arc<Queue>,
    signaled: AtomicBool,
}

impl Fence {
    pub(crate) fn signal(&self) {
        self.signaled.store(true, Ordering::Release);
    }

    fn signaled(&self) -> bool {
        self.signaled.load(Ordering::Acquire)
    }
}

static QUEUES: Registry<Queue> = Registry::new(0x00CC_0000_0000);
static FENCES: Registry<Fence> = Registry::new(0x00FE_0000_0000);

exports! {
    fn zeCommandQueueCreate(
        context: Handle,
        device: Handle,
        desc: *const ze_command_queue_desc_t,
        out: *mut Handle,
    ) {
        get(out)?;
        let Described { group, waits, .. } = described(get(desc)?)?;
        let device = CONTEXTS.get(context)?.device(device)?;
        alive(device.card)?;
        put(out, QUEUES.add(Queue { lane: Lane::new(device, group), waits }))
    }

    fn zeCommandQueueDestroy(queue: Handle) {
        let queue = QUEUES.remove(queue, |queue| {
            match queue.lane.idle() || alive(queue.lane.device.card).is_err() {
                true => Ok(()),
                false => Err(ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE),
            }
        })?;
        queue.lane.close();
        Ok(())
    }

    fn zeCommandQueueExecuteCommandLists(queue: Handle, count: u32, lists: *const Handle, fence: Handle) {
        let queue = QUEUES.get(queue)?;
        alive(queue.lane.device.card)?;
        if count == 0 {
            return Err(ZE_RESULT_ERROR_INVALID_SIZE);
        }
        let mut commands = Vec::new();
        for &list in array(lists, count)? {
            let list = live(list)?;
            if list.group != queue.lane.group {
                return Err(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE);
            }
            commands.extend(list.executable()?);
        }
        if fence != 0 {
            let fence = FENCES.get(fence)?;
            if !Arc::ptr_eq(&fence.queue, &queue) {
                return Err(ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT);
            }
            let work = Work::Signal(fence);
            commands.push(Command { work, order: Order::Barrier, signal: None, waits: Vec::new(), of: None });
        }
        queue.lane.push(commands)?;
        if queue.waits {
            queue.lane.wait(FOREVER)?;
        }
        Ok(())
    }

    fn zeCommandQueueSynchronize(queue: Handle, timeout: u64) {
        match QUEUES.get(queue)?.lane.wait(timeout)? {
            true => Ok(()),
            false => Err(ZE_RESULT_NOT_READY),
        }
    }

    fn zeFenceCreate(queue: Handle, desc: *const ze_fence_desc_t, out: *mut Handle) {
        let queue = QUEUES.get(queue)?;
        let flags = get(desc)?.flags;
        if flags > 1 {
            return Err(ZE_RESULT_ERROR_INVALID_ENUMERATION);
        }
        put(out, FENCES.add(Fence { queue, signaled: AtomicBool::new(flags & ZE_FENCE_FLAG_SIGNALED != 0) }))
    }

    fn zeFenceDestroy(fence: Handle) {
        FENCES.remove(fence, |_| Ok(())).map(drop)
    }

    fn zeFenceHostSynchronize(fence: Handle, timeout: u64) {
        let fence = FENCES.get(fence)?;
        let card = fence.queue.lane.device.card;
        let over = turn::wait(timeout, || fence.signaled() || alive(card).is_err());
        match (fence.signaled(), over) {
            (true, _) => Ok(()),
            (false, true) => alive(card),
            (false, false) => Err(ZE_RESULT_NOT_READY),
        }
    }

    fn zeFenceQueryStatus(fence: Handle) {
        let fence = FENCES.get(fence)?;
        if fence.signaled() {
            return Ok(());
        }
        alive(fence.queue.lane.device.card)?;
        Err(ZE_RESULT_NOT_READY)
    }

    fn zeFenceReset(fence: Handle) {
        FENCES.get(fence)?.signaled.store(false, Ordering::Release);
        Ok(())
    }
}
