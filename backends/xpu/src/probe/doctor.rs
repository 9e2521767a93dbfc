//! The layers for the doctor, from the bottom up. Starts nothing (H22).

use super::nodes::{NODES, Node, forbidden, nodes};
use super::{Blind, HIERARCHY, Look, MASK, ORDER, SYSMAN, Settings, starts_alone};
use crate::sys::{self, LOADER, Loader, Missing};
use anyaccel_hal::{Absence, Check, Layer, Verdict};
use std::env;

/// What a start froze.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frozen<'a> {
    /// How many devices it found.
    pub(super) devices: usize,
    /// The variables as they were.
    pub(super) settings: Option<&'a Settings>,
}

fn check(layer: Layer, verdict: Verdict, subject: impl Into<String>, found: impl Into<String>) -> Check {
    Check { layer, verdict, subject: subject.into(), found: found.into() }
}

fn skipped(layer: Layer) -> Check {
    check(layer, Verdict::NotApplicable, "", "an earlier layer failed")
}

/// Every layer. `look` is what [`look`](super::look()) says now.
pub(super) fn checks(frozen: Option<Frozen<'_>>, look: &Result<Look<'_>, Blind>) -> Vec<Check> {
    checks_with(frozen, look, &sys::loader(), &nodes())
}

fn checks_with(
    frozen: Option<Frozen<'_>>,
    look: &Result<Look<'_>, Blind>,
    loader: &Result<&'static Loader, Missing>,
    nodes: &[Node],
) -> Vec<Check> {
    let loader = match loader {
        Ok(loader) => *loader,
        Err(missing) => {
            let found = format!("{missing}; it comes with Intel's driver, or as the package libze1");
            let rest = [Layer::Version, Layer::DeviceNodes, Layer::Permissions, Layer::Mask, Layer::Probe];
            let first = check(Layer::Library, Verdict::Fail, LOADER.names()[0], found);
            return std::iter::once(first).chain(rest.map(skipped)).collect();
        }
    };
    let mut all = vec![check(Layer::Library, Verdict::Pass, &loader.path, "loads")];
    all.extend(driver(look));
    all.push(version(loader, look));
    all.extend(devices(nodes, look));
    all.push(mask(frozen, look));
    all.push(probe(frozen, look));
    all
}

/// Whether a driver came up in the loader.
fn driver(look: &Result<Look<'_>, Blind>) -> Option<Check> {
    match look {
        Ok(look) => {
            let found = format!("{} came up", look.inventory.drivers);
            Some(check(Layer::Library, Verdict::Pass, "drivers of the loader", found))
        }
        Err(Blind::Absent(Absence::Missing { layer: Layer::Library, subject, found })) => {
            Some(check(Layer::Library, Verdict::Fail, subject, found))
        }
        Err(_) => None,
    }
}

fn version(loader: &Loader, look: &Result<Look<'_>, Blind>) -> Check {
    if let Err(Blind::Absent(Absence::Missing { layer: Layer::Version, subject, found })) = look {
        return check(Layer::Version, Verdict::Fail, subject, found);
    }
    if starts_alone(loader) {
        return check(Layer::Version, Verdict::Pass, "loader", "has zesInit: counting starts nothing");
    }
    let found = "has no zesInit: only a start can count, which a later fork does not survive";
    check(Layer::Version, Verdict::Warn, "loader", found)
}

/// The kernel's nodes, and whether this user may open them. That devices were found counts for more.
fn devices(nodes: &[Node], look: &Result<Look<'_>, Blind>) -> Vec<Check> {
    let bad = if matches!(look, Err(Blind::Absent(_))) { Verdict::Fail } else { Verdict::Warn };
    if cfg!(not(target_os = "linux")) {
        let elsewhere = |layer| check(layer, Verdict::NotApplicable, "", "this system has no such nodes");
        return vec![elsewhere(Layer::DeviceNodes), elsewhere(Layer::Permissions)];
    }
    if nodes.is_empty() {
        let there = check(Layer::DeviceNodes, bad, NODES, "none of Intel's");
        return vec![there, check(Layer::Permissions, Verdict::NotApplicable, "", "no node to open")];
    }
    let names: Vec<String> = nodes.iter().map(|node| node.path.display().to_string()).collect();
    let mut all = vec![check(Layer::DeviceNodes, Verdict::Pass, NODES, names.join(", "))];
    let refused: Vec<&Node> = nodes.iter().filter(|node| node.opens.is_err()).collect();
    // One that opens is enough to go on with.
    let bad = if forbidden(nodes).is_some() { bad } else { Verdict::Warn };
    for node in &refused {
        let error = node.opens.as_ref().err().map(ToString::to_string).unwrap_or_default();
        let found = format!("{error}; its group (render or video) is needed");
        all.push(check(Layer::Permissions, bad, node.path.display().to_string(), found));
    }
    if refused.is_empty() {
        all.push(check(Layer::Permissions, Verdict::Pass, NODES, "can be opened"));
    }
    all
}

fn mask(frozen: Option<Frozen<'_>>, look: &Result<Look<'_>, Blind>) -> Check {
    let set = |name: &str| match env::var_os(name) {
        Some(value) => format!("{name}={}", value.to_string_lossy()),
        None => format!("{name} not set"),
    };
    let variables = [MASK, HIERARCHY, ORDER].map(set).join(", ");
    let (verdict, remark) = match look {
        Err(Blind::Absent(Absence::BadVariable { name, value, expected })) => {
            (Verdict::Fail, format!("{name}={value}: expected {expected}"))
        }
        _ if frozen.and_then(|frozen| frozen.settings).is_some_and(|settings| *settings != Settings::now()) => {
            (Verdict::Warn, "changed since the start".to_owned())
        }
        Ok(look) if look.count() == 0 => (Verdict::Fail, "hides all devices".to_owned()),
        Ok(look) if !look.idle().is_empty() => (Verdict::Warn, format!("names nothing by {}", look.idle().join(", "))),
        Ok(_) if env::var_os(SYSMAN).is_some_and(|value| value == "1") => {
            (Verdict::Warn, format!("{SYSMAN}=1, which keeps sensors from being read with this loader"))
        }
        Err(Blind::Absent(_)) => (Verdict::NotApplicable, String::new()),
        Ok(_) | Err(Blind::Runtime) => (Verdict::Pass, String::new()),
    };
    let found = if remark.is_empty() { variables } else { format!("{variables}: {remark}") };
    check(Layer::Mask, verdict, "environment", found)
}

fn probe(frozen: Option<Frozen<'_>>, look: &Result<Look<'_>, Blind>) -> Check {
    let count = |count: usize, names: &str| {
        let verdict = if count > 0 { Verdict::Pass } else { Verdict::Fail };
        check(Layer::Probe, verdict, "devices", format!("{count}{names}"))
    };
    match (frozen, look) {
        (Some(frozen), _) => count(frozen.devices, ", since the start"),
        (None, Ok(look)) => {
            let names = look.names().join(", ");
            let separator = if names.is_empty() { "" } else { ": " };
            count(look.count() as usize, &format!("{separator}{names}"))
        }
        (None, Err(Blind::Runtime)) => {
            let found = "only a start can count devices, which a later fork does not survive";
            check(Layer::Probe, Verdict::NotApplicable, "devices", found)
        }
        (None, Err(Blind::Absent(Absence::Missing { layer, subject, found }))) => {
            check(Layer::Probe, Verdict::Fail, subject, format!("{}: {found}", layer.name()))
        }
        (None, Err(Blind::Absent(_))) => skipped(Layer::Probe),
    }
}

#[cfg(test)]
mod tests {
    use super::super::inventory::{Card, Inventory};
    use super::super::mask::Hierarchy;
    use super::*;
    use crate::probe::inventory::blank;
    use crate::sys::ZesDevice;
    use anyaccel_hal::DeviceInfo;
    use std::io::ErrorKind;

    fn layer(all: &[Check], layer: Layer) -> Vec<(Verdict, &str)> {
        all.iter().filter(|check| check.layer == layer).map(|check| (check.verdict, check.found.as_str())).collect()
    }

    fn no_loader() -> Result<&'static Loader, Missing> {
        let (library, reason) = ("libze_loader.so.1".to_owned(), "No such file".to_owned());
        Err(Missing::Library { library, reason, variable: LOADER.variable() })
    }

    #[test]
    fn without_a_loader_nothing_else_is_examined() {
        let absence = Absence::Missing { layer: Layer::Library, subject: "l".into(), found: "f".into() };
        let all = checks_with(None, &Err(Blind::Absent(absence)), &no_loader(), &[]);
        assert_eq!(all.len(), 6);
        assert_eq!(all[0].verdict, Verdict::Fail);
        assert!(all[0].found.contains("No such file") && all[0].found.contains("libze1"), "{}", all[0].found);
        assert!(all[1..].iter().all(|check| check.verdict == Verdict::NotApplicable));
    }

    #[test]
    fn nodes_that_may_not_be_opened_fail_only_where_nothing_was_found() {
        let shut = || Node { path: "/dev/dri/renderD128".into(), opens: Err(ErrorKind::PermissionDenied.into()) };
        let open = || Node { path: "/dev/dri/renderD129".into(), opens: Ok(()) };
        let nothing = Err(Blind::Absent(Absence::Masked { name: MASK, value: String::new() }));
        let of = |nodes: &[Node], look| layer(&devices(nodes, look), Layer::Permissions)[0].0;
        assert_eq!(of(&[shut()], &nothing), Verdict::Fail);
        assert_eq!(of(&[shut(), open()], &nothing), Verdict::Warn);
        assert_eq!(of(&[open()], &nothing), Verdict::Pass);
        assert_eq!(of(&[], &nothing), Verdict::NotApplicable);
        let found = devices(&[shut()], &nothing);
        assert!(layer(&found, Layer::Permissions)[0].1.contains("render or video"));
        assert_eq!(layer(&devices(&[], &nothing), Layer::DeviceNodes)[0].0, Verdict::Fail);
    }

    #[test]
    fn what_a_mask_does_is_told() {
        let info = DeviceInfo { name: "Arc".into(), ..blank() };
        let inventory = Inventory { drivers: 1, cards: vec![Card::new(0, ZesDevice(1), 0, info)] };
        let settings = |mask: &str| Settings { mask: Some(mask.into()), hierarchy: Hierarchy::Flat, by_bus: false };
        let told = |given: &str| {
            let look = Look::of(&inventory, settings(given)).map_err(Blind::Absent);
            let (mask, probe) = (mask(None, &look), probe(None, &look));
            (mask.verdict, mask.found, probe.verdict, probe.found)
        };
        let (verdict, found, probed, devices) = told("0,4");
        assert_eq!((verdict, probed, devices.as_str()), (Verdict::Warn, Verdict::Pass, "1: Arc"));
        assert!(found.ends_with("names nothing by 4"), "{found}");
        let (verdict, found, probed, devices) = told("4");
        assert_eq!((verdict, probed, devices.as_str()), (Verdict::Fail, Verdict::Fail, "0"));
        assert!(found.ends_with("hides all devices"), "{found}");
        let (verdict, found, probed, _) = told("gpu");
        assert_eq!((verdict, probed), (Verdict::Fail, Verdict::NotApplicable));
        assert!(found.contains("ZE_AFFINITY_MASK=gpu: expected numbers"), "{found}");
    }
}
