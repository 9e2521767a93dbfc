//! The kernel's device nodes, and what it means that the management side found nothing.
//!
//! Intel's driver opens a render node for each card. It finds no card alike where there is no node, where this user may not
//! open one, and where it is not installed, and the loader then says that nothing was initialised. Looking at the nodes tells the
//! three apart. They are opened and closed again, nothing stays open (H22).

use crate::conv::Failed;
use crate::sys::*;
use anyaccel_hal::{Absence, Layer};
use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Where the nodes are.
pub(crate) const NODES: &str = "/dev/dri/renderD*";
/// Names drivers to the loader in place of those that are installed.
const DRIVERS: &str = "ZE_ENABLE_ALT_DRIVERS";
/// The node through which Windows lends its GPUs to a Linux inside of it.
const LENT: &str = "dev/dxg";
/// The number of Intel among vendors of PCI devices.
const INTEL: &str = "0x8086";

/// A render node, and what opening it says.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) path: PathBuf,
    pub(crate) opens: Result<(), std::io::Error>,
}

/// The render nodes that are Intel's, or whose vendor the kernel does not tell.
pub(crate) fn nodes() -> Vec<Node> {
    nodes_of(Path::new("/"))
}

fn nodes_of(root: &Path) -> Vec<Node> {
    let entries = fs::read_dir(root.join("dev/dri")).into_iter().flatten().flatten();
    let opens = |path: &Path| fs::OpenOptions::new().read(true).write(true).open(path).map(drop);
    let lent = Some(root.join(LENT)).filter(|path| path.exists());
    let mut nodes: Vec<Node> = entries
        .filter_map(|entry| {
            let (name, path) = (entry.file_name(), entry.path());
            if !name.to_string_lossy().starts_with("renderD") {
                return None;
            }
            let vendor = fs::read_to_string(root.join("sys/class/drm").join(&name).join("device/vendor"));
            if vendor.is_ok_and(|vendor| vendor.trim() != INTEL) {
                return None;
            }
            Some(path)
        })
        .chain(lent)
        .map(|path| Node { opens: opens(&path), path })
        .collect();
    nodes.sort_by(|one, other| one.path.cmp(&other.path));
    nodes
}

/// Why a loader that can't be asked without a start has nothing to start: no node leads to a card, and nobody named a loader or a
/// driver that may need none.
pub(crate) fn nowhere() -> Option<Absence> {
    let named = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty());
    if cfg!(not(target_os = "linux")) || named(LOADER.variable()) || named(DRIVERS) || !nodes().is_empty() {
        return None;
    }
    Some(missing(Layer::DeviceNodes, NODES, "none of Intel's"))
}

/// A node that this user may not open, if there is one and none that may be.
pub(crate) fn forbidden(nodes: &[Node]) -> Option<(&Node, &std::io::Error)> {
    if nodes.iter().any(|node| node.opens.is_ok()) {
        return None;
    }
    let denied = |node: &&Node| node.opens.as_ref().is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
    let node = nodes.iter().find(denied)?;
    Some((node, node.opens.as_ref().err()?))
}

fn missing(layer: Layer, subject: impl Into<String>, found: impl Into<String>) -> Absence {
    Absence::Missing { layer, subject: subject.into(), found: found.into() }
}

/// What a failed call of the management side means.
pub(crate) fn why(failed: Failed) -> Absence {
    why_with(failed, &nodes())
}

fn why_with(failed: Failed, nodes: &[Node]) -> Absence {
    let Failed { api, code } = failed;
    let said = match code_name(code) {
        Some(name) => format!("{api} says {name}"),
        None => format!("{api} says {code:#x}"),
    };
    match code {
        // A driver that has no such functions.
        ZE_RESULT_ERROR_UNSUPPORTED_FEATURE | ZE_RESULT_ERROR_UNSUPPORTED_VERSION | ABSENT => {
            missing(Layer::Version, "a driver whose Sysman starts apart from the runtime (1.5 or newer)", said)
        }
        ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS => missing(Layer::Permissions, NODES, said),
        ZE_RESULT_ERROR_UNINITIALIZED | ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE => nothing(nodes, said),
        _ => missing(Layer::Probe, "Sysman", said),
    }
}

/// What it means that no driver came up.
fn nothing(nodes: &[Node], said: String) -> Absence {
    if let Some((node, error)) = forbidden(nodes) {
        let found = format!("{error}; its group (render or video) is needed");
        return missing(Layer::Permissions, node.path.display().to_string(), found);
    }
    if nodes.is_empty() && cfg!(target_os = "linux") {
        return missing(Layer::DeviceNodes, NODES, format!("none of Intel's, and {said}"));
    }
    missing(Layer::Library, "a driver for the Level Zero loader (libze_intel_gpu.so.1)", said)
}

/// What it means that drivers list no GPU.
pub(crate) fn no_card(drivers: usize) -> Absence {
    match drivers {
        0 => nothing(&nodes(), "the loader lists no driver".into()),
        _ => missing(Layer::Probe, "Intel GPUs", format!("none among the devices of {drivers} drivers")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(code: Code, nodes: &[Node]) -> Layer {
        match why_with(Failed { api: "zesInit", code }, nodes) {
            Absence::Missing { layer, found, subject } => {
                assert!(layer == Layer::Permissions || found.contains("zesInit says ZE_RESULT"), "{subject}: {found}");
                layer
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn nothing_found_has_three_reasons() {
        let open = || Node { path: "/dev/dri/renderD128".into(), opens: Ok(()) };
        let shut = |kind: ErrorKind| Node { path: "/dev/dri/renderD129".into(), opens: Err(kind.into()) };
        let code = ZE_RESULT_ERROR_UNINITIALIZED;
        assert_eq!(layer(code, &[]), Layer::DeviceNodes);
        assert_eq!(layer(code, &[shut(ErrorKind::PermissionDenied)]), Layer::Permissions);
        assert_eq!(layer(code, &[open(), shut(ErrorKind::PermissionDenied)]), Layer::Library);
        assert_eq!(layer(code, &[shut(ErrorKind::NotFound)]), Layer::Library);
        assert_eq!(layer(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, &[open()]), Layer::Version);
        assert_eq!(layer(ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS, &[]), Layer::Permissions);
        assert_eq!(layer(ZE_RESULT_ERROR_DEVICE_LOST, &[open()]), Layer::Probe);
    }

    #[test]
    fn nodes_of_other_vendors_do_not_count() {
        let root = std::env::temp_dir().join(format!("anyaccel-nodes-{}", std::process::id()));
        for (name, vendor) in [("renderD128", Some("0x8086\n")), ("renderD129", Some("0x10de\n")), ("renderD130", None)]
        {
            let device = root.join("sys/class/drm").join(name).join("device");
            fs::create_dir_all(&device).expect("a folder");
            fs::create_dir_all(root.join("dev/dri")).expect("a folder");
            fs::write(root.join("dev/dri").join(name), "").expect("a node");
            if let Some(vendor) = vendor {
                fs::write(device.join("vendor"), vendor).expect("a vendor");
            }
        }
        fs::write(root.join("dev/dri/card0"), "").expect("a node");
        let found: Vec<_> = nodes_of(&root).iter().filter_map(|node| Some(node.path.file_name()?.to_owned())).collect();
        assert_eq!(found, ["renderD128", "renderD130"]);
        assert!(nodes_of(&root.join("dev")).is_empty(), "no folder, no nodes");
        fs::write(root.join(LENT), "").expect("a node");
        assert_eq!(nodes_of(&root).len(), 3);
        fs::remove_dir_all(&root).expect("to be gone");
    }
}
