//! Functions that make lists and append to them, but for kernels.

use crate::abi::*;
use crate::call::{Registry, Result, array, exports, fill, get, lock, put};
use crate::config::config;
use crate::control::alive;
use crate::device::Device;
use crate::device_calls::ENGINES;
use crate::driver_calls::CONTEXTS;
use crate::event;
use crate::lane::{Command, Lane, Order};
use crate::list::{Kind, LISTS, List, Recorded, Sync, live};
use crate::work::{HostFunction, Side, Work};
use std::ffi::c_void;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex};

/// What a queue or an immediate list is to be like; checked.
pub(crate) struct Described {
    pub(crate) group: usize,
    pub(crate) in_order: bool,
    pub(crate) waits: bool,
}

pub(crate) fn described(desc: &ze_command_queue_desc_t) -> Result<Described> {
    let in_order = desc.flags & ZE_COMMAND_QUEUE_FLAG_IN_ORDER != 0;
    let known = if config().in_order() { 7 } else { 1 };
    if desc.flags > known
        || desc.mode > ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS
        || desc.priority > ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_HIGH
    {
        return Err(ZE_RESULT_ERROR_INVALID_ENUMERATION);
    }
    let group = ENGINES.get(desc.ordinal as usize).ok_or(ZE_RESULT_ERROR_INVALID_ARGUMENT)?;
    if desc.index >= group.queues {
        return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
    }
    let waits = desc.mode == ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS;
    Ok(Described { group: desc.ordinal as usize, in_order, waits })
}

/// Adds a list for a living device of a context.
fn create(
    context: Handle,
    device: Handle,
    make: impl FnOnce(Handle, Handle, &'static Device) -> List,
) -> Result<Handle> {
    let context = CONTEXTS.get(context)?;
    let device = context.device(device)?;
    alive(device.card)?;
    let registry: &Registry<List> = &LISTS;
    Ok(registry.add_with(|handle| make(handle, context.handle, device)).0)
}

/// Fails if the list has commands that are not over; those of a lost device are.
fn unused(list: &List) -> Result {
    match list.idle() || alive(list.device.card).is_err() {
        true => Ok(()),
        false => Err(ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE),
    }
}

exports! {
    fn zeCommandListCreate(
        context: Handle,
        device: Handle,
        desc: *const ze_command_list_desc_t,
        out: *mut Handle,
    ) {
        let desc = get(desc)?;
        get(out)?;
        let group = desc.commandQueueGroupOrdinal as usize;
        if desc.flags > if config().in_order() { 0x1F } else { 7 } {
            return Err(ZE_RESULT_ERROR_INVALID_ENUMERATION);
        }
        if group >= ENGINES.len() {
            return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
        }
        let in_order = desc.flags & ZE_COMMAND_LIST_FLAG_IN_ORDER != 0;
        let (recorded, pending) = (Mutex::new(Recorded::default()), Arc::new(AtomicU32::new(0)));
        let kind = Kind::Regular { recorded, pending };
        put(out, create(context, device, |handle, context, device| {
            List { handle, context, device, group, in_order, kind }
        })?)
    }

    fn zeCommandListCreateImmediate(
        context: Handle,
        device: Handle,
        desc: *const ze_command_queue_desc_t,
        out: *mut Handle,
    ) {
        get(out)?;
        let Described { group, in_order, waits } = described(get(desc)?)?;
        put(out, create(context, device, |handle, context, device| {
            let kind = Kind::Immediate { lane: Lane::new(device, group), waits, capture: Mutex::new(None) };
            List { handle, context, device, group, in_order, kind }
        })?)
    }

    fn zeCommandListDestroy(list: Handle) {
        let list = LISTS.remove(list, unused)?;
        if let Kind::Immediate { lane, .. } = &list.kind {
            lane.close();
        }
        Ok(())
    }

    fn zeCommandListClose(list: Handle) {
        let list = live(list)?;
        match &list.kind {
            Kind::Immediate { .. } => Err(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE),
            Kind::Regular { recorded, .. } => {
                lock(recorded).closed = true;
                Ok(())
            }
        }
    }

    fn zeCommandListReset(list: Handle) {
        let list = LISTS.get(list)?;
        match &list.kind {
            Kind::Immediate { .. } => Err(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE),
            Kind::Regular { recorded, .. } => {
                unused(&list)?;
                *lock(recorded) = Recorded::default();
                Ok(())
            }
        }
    }

    fn zeCommandListHostSynchronize(list: Handle, timeout: u64) {
        let list = live(list)?;
        match &list.kind {
            Kind::Immediate { lane, .. } => match lane.wait(timeout)? {
                true => Ok(()),
                false => Err(ZE_RESULT_NOT_READY),
            },
            Kind::Regular { .. } => Err(ZE_RESULT_ERROR_INVALID_ARGUMENT),
        }
    }

    fn zeCommandListImmediateAppendCommandListsExp(
        list: Handle,
        count: u32,
        lists: *const Handle,
        signal: Handle,
        waits_count: u32,
        waits: *const Handle,
    ) {
        let list = live(list)?;
        let Kind::Immediate { lane, .. } = &list.kind else { return Err(ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE) };
        let signal = event::to_signal(signal, list.context, list.device)?;
        let waits = event::usable(array(waits, waits_count)?, list.context, list.device)?;
        let edge = |signal, waits| Command { work: Work::Nothing, order: Order::Barrier, signal, waits, of: None };
        let mut commands = vec![edge(None, waits)];
        for &other in array(lists, count)? {
            commands.extend(live(other)?.executable()?);
        }
        commands.push(edge(signal, Vec::new()));
        lane.push(commands)
    }

    fn zeCommandListAppendWriteGlobalTimestamp(
        list: Handle,
        dst: *mut u64,
        signal: Handle,
        count: u32,
        waits: *const Handle,
    ) {
        let list = live(list)?;
        list.check(dst as u64, 8, true)?;
        list.append(Work::Time { dst: dst as u64 }, Sync::new(signal, count, waits)?)
    }

    fn zeCommandListAppendBarrier(list: Handle, signal: Handle, count: u32, waits: *const Handle) {
        live(list)?.append(Work::Nothing, Sync::new(signal, count, waits)?.with(Order::Barrier))
    }

    fn zeCommandListAppendMemoryRangesBarrier(
        list: Handle,
        ranges: u32,
        sizes: *const usize,
        starts: *const *const c_void,
        signal: Handle,
        count: u32,
        waits: *const Handle,
    ) {
        let list = live(list)?;
        for (&size, &start) in array(sizes, ranges)?.iter().zip(array(starts, ranges)?) {
            list.check(start as u64, size as u64, false)?;
        }
        list.append(Work::Nothing, Sync::new(signal, count, waits)?.with(Order::Barrier))
    }

    fn zeCommandListAppendMemoryCopy(
        list: Handle,
        dst: *mut c_void,
        src: *const c_void,
        size: usize,
        signal: Handle,
        count: u32,
        waits: *const Handle,
    ) {
        let list = live(list)?;
        let (dst, src, len) = (dst as u64, src as u64, size as u64);
        list.check(dst, len, true)?;
        list.check(src, len, false)?;
        list.append(Work::Copy { dst, src, len }, Sync::new(signal, count, waits)?)
    }

    fn zeCommandListAppendMemoryCopyFromContext(
        list: Handle,
        dst: *mut c_void,
        context: Handle,
        src: *const c_void,
        size: usize,
        signal: Handle,
        count: u32,
        waits: *const Handle,
    ) {
        let list = live(list)?;
        let context = CONTEXTS.get(context)?;
        let (dst, src, len) = (dst as u64, src as u64, size as u64);
        list.check(dst, len, true)?;
        crate::memory::of_context(context.handle, src, size)?;
        list.append(Work::Copy { dst, src, len }, Sync::new(signal, count, waits)?)
    }

    fn zeCommandListAppendMemoryCopyRegion(
        list: Handle,
        dst: *mut c_void,
        dst_region: *const ze_copy_region_t,
        dst_row: u32,
        dst_slice: u32,
        src: *const c_void,
        src_region: *const ze_copy_region_t,
        src_row: u32,
        src_slice: u32,
        signal: Handle,
        count: u32,
        waits: *const Handle,
    ) {
        let list = live(list)?;
        let dst = Side { at: dst as u64, region: *get(dst_region)?, row: dst_row, slice: dst_slice };
        let src = Side { at: src as u64, region: *get(src_region)?, row: src_row, slice: src_slice };
        let size = |side: &Side| (side.region.width, side.region.height, side.region.depth);
        if size(&dst) != size(&src) || dst.region.width == 0 || dst.region.height == 0 {
            return Err(ZE_RESULT_ERROR_INVALID_SIZE);
        }
        list.check(dst.at, 1, true)?;
        list.check(src.at, 1, false)?;
        list.append(Work::CopyBox { dst, src }, Sync::new(signal, count, waits)?)
    }

    fn zeCommandListAppendMemoryFill(
        list: Handle,
        dst: *mut c_void,
        pattern: *const c_void,
        pattern_size: usize,
        size: usize,
        signal: Handle,
        count: u32,
        waits: *const Handle,
    ) {
        let list = live(list)?;
        let (dst, len) = (dst as u64, size as u64);
        list.check(dst, len, true)?;
        get(pattern.cast::<u8>())?;
        let fits = pattern_size.is_power_of_two()
            && pattern_size <= ENGINES[list.group].fill
            && size.is_multiple_of(pattern_size)
            && dst.is_multiple_of(pattern_size as u64);
        if !fits {
            return Err(ZE_RESULT_ERROR_INVALID_SIZE);
        }
        let pattern = std::slice::from_raw_parts(pattern.cast::<u8>(), pattern_size).to_vec();
        list.append(Work::Fill { dst, pattern, len }, Sync::new(signal, count, waits)?)
    }

    fn zeCommandListAppendMemoryPrefetch(list: Handle, at: *const c_void, size: usize) {
        live(list)?.check(at as u64, size as u64, false)
    }

    fn zeCommandListAppendMemAdvise(list: Handle, device: Handle, at: *const c_void, size: usize, advice: u32) {
        let list = live(list)?;
        CONTEXTS.get(list.context)?.device(device)?;
        if advice > 11 {
            return Err(ZE_RESULT_ERROR_INVALID_ENUMERATION);
        }
        list.check(at as u64, size as u64, false)
    }

    fn zeCommandListAppendSignalEvent(list: Handle, event: Handle) {
        if event == 0 {
            return Err(ZE_RESULT_ERROR_INVALID_NULL_HANDLE);
        }
        live(list)?.append(Work::Nothing, Sync::new(event, 0, std::ptr::null())?)
    }

    fn zeCommandListAppendWaitOnEvents(list: Handle, count: u32, waits: *const Handle) {
        get(waits)?;
        live(list)?.append(Work::Nothing, Sync::new(0, count, waits)?.with(Order::Gate))
    }

    fn zeCommandListAppendEventReset(list: Handle, event: Handle) {
        let list = live(list)?;
        let event = event::to_signal(event, list.context, list.device)?.ok_or(ZE_RESULT_ERROR_INVALID_NULL_HANDLE)?;
        list.append(Work::Reset(event), Sync::none())
    }

    fn zeCommandListAppendQueryKernelTimestamps(
        list: Handle,
        events: u32,
        handles: *const Handle,
        dst: *mut c_void,
        offsets: *const usize,
        signal: Handle,
        count: u32,
        waits: *const Handle,
    ) {
        let list = live(list)?;
        let found = event::usable(array(handles, events)?, list.context, list.device)?;
        let size = size_of::<ze_kernel_timestamp_result_t>();
        let offset = |at: usize| if offsets.is_null() { at * size } else { offsets.add(at).read() };
        let mut of = Vec::new();
        for (at, event) in found.into_iter().enumerate() {
            list.check((dst as u64).wrapping_add(offset(at) as u64), size as u64, true)?;
            of.push((event, offset(at) as u64));
        }
        list.append(Work::Times { dst: dst as u64, of }, Sync::new(signal, count, waits)?)
    }

    fn zeCommandListAppendHostFunction(
        list: Handle,
        function: Option<HostFunction>,
        data: *mut c_void,
        _next: *const c_void,
        signal: Handle,
        count: u32,
        waits: *const Handle,
    ) {
        let list = live(list)?;
        let function = function.ok_or(ZE_RESULT_ERROR_INVALID_NULL_POINTER)?;
        list.append(Work::Host { function, data: data as usize }, Sync::new(signal, count, waits)?)
    }

    fn zeCommandListIsImmediate(list: Handle, out: *mut u8) {
        let list = LISTS.get(list)?;
        *fill(out)? = u8::from(matches!(list.kind, Kind::Immediate { .. }));
        Ok(())
    }
}
