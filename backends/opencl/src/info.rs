//! What a device says of itself, asked once, when the driver starts.

use crate::config::{Addressing, Settings};
use crate::discovery::Found;
use crate::query::DeviceId;
use crate::sys::{self, Buffers09, Buffers10, DeviceAddress, SymbolTable, Usm};
use anyaccel_hal::{DTypeSet, DeviceInfo, Fault, PatternSizes, PciAddress, PriorityRange, Uuid};
use std::ffi::{CStr, c_void};

/// An extension's version: major, minor, patch.
type Version = (u32, u32, u32);

/// A device's extensions by name. The version is 0 where the device does not tell it.
pub(crate) struct Extensions(Vec<(String, Version)>);

impl Extensions {
    pub(crate) fn of(id: DeviceId) -> Self {
        let mut all: Vec<(String, Version)> =
            versioned(&id.bytes(sys::DEVICE_EXTENSIONS_WITH_VERSION).unwrap_or_default());
        for name in id.text(sys::DEVICE_EXTENSIONS).unwrap_or_default().split_whitespace() {
            if !all.iter().any(|(known, _)| known == name) {
                all.push((name.to_owned(), (0, 0, 0)));
            }
        }
        Self(all)
    }

    pub(crate) fn version(&self, name: &str) -> Option<Version> {
        self.0.iter().find(|(known, _)| known == name).map(|&(_, version)| version)
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.version(name).is_some()
    }
}

/// Reads an array of `cl_name_version`: a version of 4 bytes, then a name in 64.
fn versioned(bytes: &[u8]) -> Vec<(String, Version)> {
    let entries = bytes.chunks_exact(68);
    entries
        .filter_map(|entry| {
            let version = u32::from_ne_bytes(entry[..4].try_into().ok()?);
            let end = entry[4..].iter().position(|&byte| byte == 0).unwrap_or(64);
            let name = String::from_utf8_lossy(&entry[4..4 + end]).into_owned();
            Some((name, (version >> 22, (version >> 12) & 0x3FF, version & 0xFFF)))
        })
        .collect()
}

/// The functions for command buffers, whose types changed between versions.
pub(crate) enum CommandBuffers {
    Old(Buffers09),
    New(Buffers10),
}

/// Everything about a device that does not change.
pub(crate) struct Facts {
    pub(crate) id: DeviceId,
    pub(crate) version: (u32, u32),
    pub(crate) info: DeviceInfo,
    pub(crate) addressing: Addressing,
    pub(crate) usm: Option<Usm>,
    pub(crate) device_address: Option<DeviceAddress>,
    /// Whether there is USM of the host.
    pub(crate) host_usm: bool,
    /// Whether other devices of the context can name its memory.
    pub(crate) shares: bool,
    /// Whether shared virtual memory can be used by the host without mapping it.
    pub(crate) fine_svm: bool,
    pub(crate) command_buffers: Option<CommandBuffers>,
    /// Whether a command buffer may be enqueued again before it has ended.
    pub(crate) simultaneous: bool,
    /// Whether queues take a priority.
    pub(crate) priorities: bool,
    /// Whether programs may come as SPIR-V.
    pub(crate) spirv: bool,
    pub(crate) max_threads: u32,
    pub(crate) max_threads_by_axis: [u64; 3],
    pub(crate) max_local: u64,
}

impl Facts {
    pub(crate) fn of(found: &Found, settings: &Settings) -> Result<Self, Fault> {
        let id = found.id;
        let number = |name| id.number(name).unwrap_or(0);
        let extensions = Extensions::of(id);
        let find = |name: &CStr| -> *mut c_void { id.extension(name) };
        // SAFETY: C5: the platform's functions of the extensions that its device names.
        let usm =
            unsafe { (extensions.has("cl_intel_unified_shared_memory")).then(|| Usm::load(&find).ok()).flatten() };
        let usm = usm.filter(|_| number(sys::DEVICE_DEVICE_MEM_CAPABILITIES_INTEL) & 1 != 0);
        // SAFETY: as above.
        let device_address = unsafe {
            extensions.has("cl_ext_buffer_device_address").then(|| DeviceAddress::load(&find).ok()).flatten()
        };
        let svm = number(sys::DEVICE_SVM_CAPABILITIES);
        let svm = if svm_functions(id) { svm } else { 0 };
        let has = |addressing| match addressing {
            Addressing::Usm => usm.is_some(),
            Addressing::DeviceAddress => device_address.is_some() && id.api.clCreateBufferWithProperties.is_some(),
            Addressing::Svm => svm & sys::DEVICE_SVM_COARSE_GRAIN_BUFFER != 0,
            Addressing::Buffer => true,
        };
        let name = id.text(sys::DEVICE_NAME).filter(|name| !name.is_empty()).unwrap_or_else(|| "OpenCL device".into());
        let addressing = match settings.addressing {
            Some(asked) if !has(asked) => {
                let note = format!("{name} has no memory of the form {:?}", asked.name());
                return Err(Fault::invalid("start", note));
            }
            Some(asked) => asked,
            None => Addressing::ALL.into_iter().find(|&addressing| has(addressing)).unwrap_or(Addressing::Buffer),
        };
        let priorities = extensions.has("cl_khr_priority_hints");
        let base_alignment = (number(sys::DEVICE_MEM_BASE_ADDR_ALIGN) / 8).max(1).next_power_of_two();
        let memory = number(sys::DEVICE_GLOBAL_MEM_SIZE).clamp(1, settings.memory.max(1));
        let sizes = id.sizes(sys::DEVICE_MAX_WORK_ITEM_SIZES).unwrap_or_default();
        let axis = |at: usize| sizes.get(at).copied().unwrap_or(1);
        let by_address = matches!(addressing, Addressing::Usm | Addressing::Svm);
        let info = DeviceInfo {
            name,
            vendor: id.text(sys::DEVICE_VENDOR).unwrap_or_default(),
            driver: id.text(sys::DRIVER_VERSION).unwrap_or_default(),
            uuid: extensions.has("cl_khr_device_uuid").then(|| uuid(id)).flatten(),
            pci: extensions.has("cl_khr_pci_bus_info").then(|| pci(id)).flatten(),
            memory,
            max_alloc: number(sys::DEVICE_MAX_MEM_ALLOC_SIZE).clamp(1, memory),
            // The largest data type is what allocations by address are aligned to at most.
            alignment: if by_address { 128 } else { base_alignment.max(128) },
            place_alignment: if by_address { 1 } else { base_alignment },
            host_ends: true,
            stamp_ns: number(sys::DEVICE_PROFILING_TIMER_RESOLUTION).clamp(1, u32::MAX.into()) as u32,
            fill_patterns: PatternSizes::ALL,
            cores: Some(number(sys::DEVICE_MAX_COMPUTE_UNITS) as u32).filter(|&cores| cores > 0),
            clock_mhz: Some(number(sys::DEVICE_MAX_CLOCK_FREQUENCY) as u32).filter(|&clock| clock > 0),
            integrated: id.number(sys::DEVICE_HOST_UNIFIED_MEMORY).map(|unified| unified != 0),
            priorities: PriorityRange { least: 0, greatest: if priorities { -1 } else { 0 } },
            // The built-ins know.
            dtypes: DTypeSet::EMPTY,
        };
        let (command_buffers, simultaneous) = command_buffers(id, &extensions);
        Ok(Self {
            id,
            version: found.version,
            info,
            addressing,
            usm,
            device_address,
            host_usm: number(sys::DEVICE_HOST_MEM_CAPABILITIES_INTEL) & 1 != 0,
            shares: addressing != Addressing::Usm
                || number(sys::DEVICE_CROSS_DEVICE_SHARED_MEM_CAPABILITIES_INTEL) & 1 != 0,
            fine_svm: svm & sys::DEVICE_SVM_FINE_GRAIN_BUFFER != 0,
            command_buffers,
            simultaneous,
            priorities,
            spirv: spirv(id),
            max_threads: number(sys::DEVICE_MAX_WORK_GROUP_SIZE).clamp(1, u32::MAX.into()) as u32,
            max_threads_by_axis: [axis(0), axis(1), axis(2)],
            max_local: number(sys::DEVICE_LOCAL_MEM_SIZE),
        })
    }

    /// Whether copies and fills name memory by its object.
    pub(crate) fn by_object(&self) -> bool {
        matches!(self.addressing, Addressing::DeviceAddress | Addressing::Buffer)
    }
}

fn svm_functions(id: DeviceId) -> bool {
    let api = id.api;
    api.clSVMAlloc.is_some()
        && api.clSVMFree.is_some()
        && api.clEnqueueSVMMemcpy.is_some()
        && api.clEnqueueSVMMemFill.is_some()
        && api.clSetKernelArgSVMPointer.is_some()
}

fn spirv(id: DeviceId) -> bool {
    let named = id.text(sys::DEVICE_IL_VERSION).unwrap_or_default().contains("SPIR-V");
    named && id.api.clCreateProgramWithIL.is_some()
}

fn command_buffers(id: DeviceId, extensions: &Extensions) -> (Option<CommandBuffers>, bool) {
    let Some(version) = extensions.version("cl_khr_command_buffer") else { return (None, false) };
    let find = |name: &CStr| -> *mut c_void { id.extension(name) };
    // SAFETY: C5: the types of these functions depend on the version, which the device tells.
    let table = unsafe {
        if version >= (0, 9, 5) {
            Buffers10::load(&find).ok().map(CommandBuffers::New)
        } else {
            Buffers09::load(&find).ok().map(CommandBuffers::Old)
        }
    };
    // A queue of ours keeps times and nothing else.
    let required = id.number(sys::DEVICE_COMMAND_BUFFER_REQUIRED_QUEUE_PROPERTIES_KHR).unwrap_or(0);
    let fits = required & !sys::QUEUE_PROFILING_ENABLE == 0;
    let capabilities = id.number(sys::DEVICE_COMMAND_BUFFER_CAPABILITIES_KHR).unwrap_or(0);
    (table.filter(|_| fits), capabilities & sys::COMMAND_BUFFER_CAPABILITY_SIMULTANEOUS_USE_KHR != 0)
}

fn uuid(id: DeviceId) -> Option<Uuid> {
    let bytes: [u8; 16] = id.bytes(sys::DEVICE_UUID_KHR)?.try_into().ok()?;
    (bytes != [0; 16]).then_some(Uuid(bytes))
}

fn pci(id: DeviceId) -> Option<PciAddress> {
    let bytes: [u8; 16] = id.bytes(sys::DEVICE_PCI_BUS_INFO_KHR)?.try_into().ok()?;
    let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let byte = |at| u8::try_from(word(at)).ok();
    Some(PciAddress { domain: word(0), bus: byte(4)?, device: byte(8)?, function: byte(12)? })
}

/// Identities that several devices claim identify none of them.
pub(crate) fn drop_shared_identities(all: &mut [Facts]) {
    let uuids: Vec<Option<Uuid>> = all.iter().map(|facts| facts.info.uuid).collect();
    let places: Vec<Option<PciAddress>> = all.iter().map(|facts| facts.info.pci).collect();
    for facts in all {
        let shared = |count: usize| count > 1;
        if facts.info.uuid.is_some() && shared(uuids.iter().filter(|&&uuid| uuid == facts.info.uuid).count()) {
            facts.info.uuid = None;
        }
        if facts.info.pci.is_some() && shared(places.iter().filter(|&&place| place == facts.info.pci).count()) {
            facts.info.pci = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_versions_are_read_from_their_array() {
        let mut bytes = vec![0_u8; 2 * 68];
        bytes[..4].copy_from_slice(&((9_u32 << 12) | 4).to_ne_bytes());
        bytes[4..25].copy_from_slice(b"cl_khr_command_buffer");
        bytes[68..72].copy_from_slice(&(1_u32 << 22).to_ne_bytes());
        bytes[72..83].copy_from_slice(b"cl_khr_fp64");
        let read = versioned(&bytes);
        assert_eq!(read, [("cl_khr_command_buffer".into(), (0, 9, 4)), ("cl_khr_fp64".into(), (1, 0, 0))]);
        assert!(versioned(&bytes[..67]).is_empty());
    }
}
