//! Functions about kernels: their arguments, their groups.

use crate::abi::*;
use crate::call::{Registry, Result, exports, fill, get, lock, put, put_text};
use crate::device_calls::{LOCAL_MEMORY, MOST_GROUPS, MOST_THREADS};
use crate::list;
use crate::module::{self, MODULES, Module};
use crate::spirv::{Entry, Param};
use crate::work::Work;
use anyaccel_fake::kernels::Launch;
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

struct Kernel {
    module: Arc<Module>,
    entry: Arc<Entry>,
    state: Mutex<State>,
}

/// What is set, for the next launch.
struct State {
    group: [u32; 3],
    args: Vec<Option<Vec<u8>>>,
    indirect: u32,
}

static KERNELS: Registry<Kernel> = Registry::new(0x0040_0000_0000);
static NEXT: AtomicU32 = AtomicU32::new(1);

fn fits(group: [u32; 3]) -> bool {
    let threads = group.iter().try_fold(1_u32, |all, &threads| all.checked_mul(threads));
    threads.is_some_and(|threads| (1..=MOST_THREADS).contains(&threads))
}

/// A launch with what is set now.
fn launch(on: &list::List, kernel: Handle, groups: ze_group_count_t) -> Result<Arc<Launch>> {
    let kernel = KERNELS.get(kernel)?;
    if !std::ptr::eq(kernel.module.device.card, on.device.card) {
        return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
    }
    let groups = [groups.groupCountX, groups.groupCountY, groups.groupCountZ];
    if groups.iter().zip(MOST_GROUPS).any(|(&count, most)| count > most) {
        return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
    }
    let state = lock(&kernel.state);
    if !fits(state.group) {
        return Err(ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION);
    }
    // What was never set would be anything.
    let args = state.args.iter().cloned().collect::<Option<Vec<Vec<u8>>>>().ok_or(ZE_RESULT_ERROR_INVALID_ARGUMENT)?;
    Ok(Arc::new(Launch { name: kernel.entry.name.clone(), groups, threads: state.group, args }))
}

exports! {
    fn zeKernelCreate(module: Handle, desc: *const ze_kernel_desc_t, out: *mut Handle) {
        let module = MODULES.get(module)?;
        let desc = get(desc)?;
        get(desc.pKernelName)?;
        get(out)?;
        if desc.flags > 3 {
            return Err(ZE_RESULT_ERROR_INVALID_ENUMERATION);
        }
        let entry = module::find(&module, &CStr::from_ptr(desc.pKernelName).to_string_lossy())?;
        module.kernels.fetch_add(1, Ordering::SeqCst);
        let state = State { group: [1, 1, 1], args: vec![None; entry.params.len()], indirect: 0 };
        put(out, KERNELS.add(Kernel { module, entry, state: Mutex::new(state) }))
    }

    fn zeKernelDestroy(kernel: Handle) {
        KERNELS.remove(kernel, |_| Ok(()))?.module.kernels.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }

    fn zeKernelSetCacheConfig(kernel: Handle, flags: u32) {
        KERNELS.get(kernel)?;
        if flags > 3 { Err(ZE_RESULT_ERROR_INVALID_ENUMERATION) } else { Ok(()) }
    }

    fn zeKernelSetGroupSize(kernel: Handle, x: u32, y: u32, z: u32) {
        let kernel = KERNELS.get(kernel)?;
        if !fits([x, y, z]) {
            return Err(ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION);
        }
        lock(&kernel.state).group = [x, y, z];
        Ok(())
    }

    fn zeKernelSuggestGroupSize(
        kernel: Handle,
        all_x: u32,
        all_y: u32,
        all_z: u32,
        x: *mut u32,
        y: *mut u32,
        z: *mut u32,
    ) {
        KERNELS.get(kernel)?;
        if all_x == 0 || all_y == 0 || all_z == 0 {
            return Err(ZE_RESULT_ERROR_INVALID_GLOBAL_WIDTH_DIMENSION);
        }
        // The largest that divides the whole.
        put(x, (1..=256.min(all_x)).rev().find(|threads| all_x.is_multiple_of(*threads)).unwrap_or(1))?;
        put(y, 1)?;
        put(z, 1)
    }

    fn zeKernelSuggestMaxCooperativeGroupCount(kernel: Handle, out: *mut u32) {
        KERNELS.get(kernel)?;
        put(out, 64)
    }

    fn zeKernelSetArgumentValue(kernel: Handle, index: u32, size: usize, value: *const c_void) {
        let kernel = KERNELS.get(kernel)?;
        let at = index as usize;
        let &param = kernel.entry.params.get(at).ok_or(ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX)?;
        let wrong = match param {
            Param::Value(bytes) => size != bytes || value.is_null(),
            Param::Global => size != 8,
            Param::Local => size == 0 || size > LOCAL_MEMORY as usize || !value.is_null(),
        };
        if wrong {
            return Err(ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE);
        }
        let bytes = match param {
            Param::Local => Vec::new(),
            _ if value.is_null() => vec![0; size],
            _ => std::slice::from_raw_parts(value.cast::<u8>(), size).to_vec(),
        };
        lock(&kernel.state).args[at] = Some(bytes);
        Ok(())
    }

    fn zeKernelSetIndirectAccess(kernel: Handle, flags: u32) {
        let kernel = KERNELS.get(kernel)?;
        if flags > 7 {
            return Err(ZE_RESULT_ERROR_INVALID_ENUMERATION);
        }
        lock(&kernel.state).indirect = flags;
        Ok(())
    }

    fn zeKernelGetIndirectAccess(kernel: Handle, out: *mut u32) {
        put(out, lock(&KERNELS.get(kernel)?.state).indirect)
    }

    fn zeKernelGetProperties(kernel: Handle, out: *mut ze_kernel_properties_t) {
        let kernel = KERNELS.get(kernel)?;
        let out = fill(out)?;
        out.numKernelArgs = kernel.entry.params.len() as u32;
        (out.requiredGroupSizeX, out.requiredGroupSizeY, out.requiredGroupSizeZ) = (0, 0, 0);
        (out.requiredNumSubGroups, out.requiredSubgroupSize) = (0, 0);
        (out.maxSubgroupSize, out.maxNumSubgroups) = (32, MOST_THREADS / 32);
        (out.localMemSize, out.privateMemSize, out.spillMemSize) = (0, 0, 0);
        let mut kid = [0; 16];
        kid[..4].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_le_bytes());
        out.uuid = ze_kernel_uuid_t { kid, mid: [0; 16] };
        Ok(())
    }

    fn zeKernelGetName(kernel: Handle, size: *mut usize, out: *mut c_char) {
        put_text(size, out, &KERNELS.get(kernel)?.entry.name)
    }

    fn zeCommandListAppendLaunchKernel(
        list: Handle,
        kernel: Handle,
        groups: *const ze_group_count_t,
        signal: Handle,
        count: u32,
        waits: *const Handle,
    ) {
        let list = list::computing(list)?;
        let work = Work::Launch(launch(&list, kernel, *get(groups)?)?);
        list.append(work, list::Sync::new(signal, count, waits)?)
    }

    fn zeCommandListAppendLaunchCooperativeKernel(
        list: Handle,
        kernel: Handle,
        groups: *const ze_group_count_t,
        signal: Handle,
        count: u32,
        waits: *const Handle,
    ) {
        let list = list::computing(list)?;
        let work = Work::Launch(launch(&list, kernel, *get(groups)?)?);
        list.append(work, list::Sync::new(signal, count, waits)?)
    }

    fn zeCommandListAppendLaunchKernelIndirect(
        list: Handle,
        kernel: Handle,
        groups: *const ze_group_count_t,
        signal: Handle,
        count: u32,
        waits: *const Handle,
    ) {
        let list = list::computing(list)?;
        list.check(groups as u64, size_of::<ze_group_count_t>() as u64, false)?;
        let one = ze_group_count_t { groupCountX: 1, groupCountY: 1, groupCountZ: 1 };
        let work = Work::LaunchIndirect(launch(&list, kernel, one)?, groups as u64);
        list.append(work, list::Sync::new(signal, count, waits)?)
    }
}
