//! What keeps devices away: absences in words, and the mistakes in the environment that make commands fail.

use crate::output::one_line;
use anyaccel::hal::Absence;
use anyaccel::{Backend, Check, Kind, Layer, LoadError, Probe, Selection, Verdict, plugins};

/// The variable that names a backend.
pub(crate) const BACKEND: &str = "ANYACCEL_BACKEND";
/// The variable that names vendors' plugins.
pub(crate) const PLUGINS: &str = "ANYACCEL_PLUGINS";

/// Why there is no device, in words.
pub(crate) fn absence(absence: &Absence) -> String {
    one_line(&match absence {
        Absence::Missing { subject, found, .. } => said(subject, found),
        Absence::BadVariable { name, value, expected } => {
            format!("{name}='{value}' can't be used: expected {expected}")
        }
        Absence::Masked { name, value } => format!("all devices are hidden by {name}='{value}'"),
    })
}

/// What was found of a subject, which a driver's own words may begin with.
pub(crate) fn said(subject: &str, found: &str) -> String {
    match (subject, found) {
        ("", words) | (words, "") => words.to_owned(),
        _ if found.starts_with(subject) => found.to_owned(),
        _ => format!("{subject}: {found}"),
    }
}

/// What an examination found wrong with a backend whose probe would have to start it, if it found something: what a variable
/// does comes first.
fn fault(backend: &Backend) -> Option<&Check> {
    let failed = || backend.checks.iter().filter(|check| check.verdict == Verdict::Fail);
    failed().find(|check| check.layer == Layer::Mask).or_else(|| failed().next())
}

/// Why a backend that was asked for has no device, as far as that is known without a start, and whether a variable is at fault.
pub(crate) fn why_unavailable(backend: &Backend) -> (String, bool) {
    match (&backend.probe, fault(backend)) {
        (Some(Probe { absence: Some(found), .. }), _) => (absence(found), !matches!(found, Absence::Missing { .. })),
        // The subject of variables is the environment.
        (None, Some(check)) if check.layer == Layer::Mask => (one_line(&check.found), true),
        (None, Some(check)) => (one_line(&said(&check.subject, &check.found)), false),
        _ => ("no device found".to_owned(), false),
    }
}

/// Why a backend has no device, if it has none.
pub(crate) fn why_none(backend: &Backend) -> Option<String> {
    let probe = backend.probe.as_ref()?;
    if probe.visible > 0 {
        return None;
    }
    Some(probe.absence.as_ref().map_or_else(|| "no device found".to_owned(), absence))
}

/// Which backend is chosen, in words.
pub(crate) fn chosen(selection: &Selection, backends: &[Backend]) -> String {
    let unnamed: Vec<&str> = backends.iter().filter(|b| !b.chosen_by_itself).map(|b| b.kind.name()).collect();
    let by_name = || match unnamed.as_slice() {
        [] => String::new(),
        [one] => format!(" ({one} is used only when named)"),
        more => format!(" ({} are used only when named)", more.join(" and ")),
    };
    match (&selection.error, selection.kind, &selection.variable) {
        (Some(error), ..) => one_line(&error.to_string()),
        (None, Some(kind), Some(_)) => format!("{kind}, named by {BACKEND}"),
        (None, Some(kind), None) if selection.count_now == Some(0) => {
            format!("{kind}, which has no device{}", by_name())
        }
        (None, Some(kind), None) => format!("{kind}, the first with a device"),
        (None, None, _) => format!("none: no accelerator found{}", by_name()),
    }
}

/// Plugins that the environment names and that are none.
pub(crate) fn refusals() -> impl Iterator<Item = LoadError> {
    plugins().into_iter().filter_map(|report| report.outcome.err())
}

/// Layers of plugins that are not right. Who names a plugin wants it used.
pub(crate) fn failing<'a>(backends: &'a [Backend]) -> impl Iterator<Item = String> + 'a {
    let kinds: Vec<Kind> = plugins().into_iter().filter_map(|report| report.outcome.ok()).collect();
    let plugins = backends.iter().filter(move |backend| kinds.contains(&backend.kind));
    plugins.flat_map(|Backend { kind, checks, .. }| {
        let failed = checks.iter().filter(|check| check.verdict == Verdict::Fail);
        failed.map(move |check| {
            one_line(&format!("{PLUGINS}: {kind}, {}: {}", check.layer.name(), said(&check.subject, &check.found)))
        })
    })
}

/// Mistakes in the environment, each with its variable and value: what the first call that needs a device would report.
pub(crate) fn problems(backends: &[Backend], selection: &Selection) -> Vec<String> {
    let mut problems: Vec<String> = selection.error.iter().map(|error| one_line(&error.to_string())).collect();
    problems.extend(refusals().map(|error| one_line(&format!("{PLUGINS}: {error}"))));
    for backend in backends {
        let named = selection.variable.as_deref() == Some(backend.kind.name());
        let (why, variable) = why_unavailable(backend);
        match &backend.probe {
            Some(Probe { absence: Some(Absence::BadVariable { .. }), .. }) => problems.push(why),
            Some(probe) if named && probe.visible == 0 => {
                problems.push(format!("{BACKEND}='{}' has no device: {why}", backend.kind));
            }
            // What only a start tells is told by one.
            None if variable => problems.push(format!("{}: {why}", backend.kind)),
            None if named && fault(backend).is_some() => {
                problems.push(format!("{BACKEND}='{}' has no device: {why}", backend.kind));
            }
            _ => {}
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backend(kind: Kind, probe: Probe) -> Backend {
        Backend { kind, chosen_by_itself: kind == Kind::CUDA, probe: Some(probe), devices: vec![], checks: vec![] }
    }

    fn selection(variable: Option<&str>, kind: Option<Kind>, count: Option<u32>) -> Selection {
        Selection {
            variable: variable.map(str::to_owned),
            kind,
            started: false,
            count_at_start: None,
            count_now: count,
            error: None,
        }
    }

    fn masked(name: &'static str) -> Probe {
        Probe { present: Some(1), ..Probe::absent(Absence::Masked { name, value: "0".to_owned() }) }
    }

    #[test]
    fn a_mask_is_a_problem_only_of_a_backend_that_was_named() {
        let backends = [backend(Kind::HOST, masked("ANYACCEL_HOST_DEVICES"))];
        assert_eq!(problems(&backends, &selection(None, None, None)), Vec::<String>::new());
        assert_eq!(
            problems(&backends, &selection(Some("host"), Some(Kind::HOST), Some(0))),
            ["ANYACCEL_BACKEND='host' has no device: all devices are hidden by ANYACCEL_HOST_DEVICES='0'"]
        );
    }

    #[test]
    fn a_missing_library_is_no_problem_and_a_bad_variable_always_is() {
        let missing = Absence::Missing {
            layer: anyaccel::Layer::Library,
            subject: "libcuda.so.1".to_owned(),
            found: "not found".to_owned(),
        };
        let cuda = backend(Kind::CUDA, Probe::absent(missing));
        assert_eq!(why_none(&cuda).as_deref(), Some("libcuda.so.1: not found"));
        assert!(problems(&[cuda], &selection(None, Some(Kind::CUDA), Some(0))).is_empty());

        let bad = Absence::BadVariable { name: "X", value: "a\nb".to_owned(), expected: "a number" };
        let found = problems(&[backend(Kind::CUDA, Probe::absent(bad))], &selection(None, None, None));
        assert_eq!(found, ["X='a b' can't be used: expected a number"]);
    }

    #[test]
    fn what_only_a_start_could_probe_is_judged_by_its_layers() {
        let check = |layer, subject: &str, found: &str| Check {
            layer,
            verdict: Verdict::Fail,
            subject: subject.to_owned(),
            found: found.to_owned(),
        };
        let nodes = check(Layer::DeviceNodes, "/dev/x", "none of theirs");
        let mask = check(Layer::Mask, "environment", "MASK=x: expected numbers");
        let backend = |checks| Backend { probe: None, checks, ..backend(Kind::XPU, Probe::found(0)) };
        let named = selection(Some("xpu"), Some(Kind::XPU), None);
        let unnamed = selection(None, None, None);
        let told = |checks, selection| problems(&[backend(checks)], selection);
        assert_eq!(told(vec![], &named), Vec::<String>::new());
        assert_eq!(told(vec![nodes.clone()], &unnamed), Vec::<String>::new());
        assert_eq!(told(vec![nodes.clone()], &named), ["ANYACCEL_BACKEND='xpu' has no device: /dev/x: none of theirs"]);
        assert_eq!(told(vec![nodes, mask], &unnamed), ["xpu: MASK=x: expected numbers"]);
    }

    #[test]
    fn a_driver_that_names_the_subject_itself_is_not_told_twice() {
        assert_eq!(said("libx.so", "libx.so: no such file"), "libx.so: no such file");
        assert_eq!(said("libx.so", "no such file"), "libx.so: no such file");
        assert_eq!((said("", "found"), said("subject", "")), ("found".to_owned(), "subject".to_owned()));
    }

    #[test]
    fn the_choice_is_told_with_its_reason() {
        let backends = [backend(Kind::CUDA, Probe::found(1)), backend(Kind::HOST, Probe::found(1))];
        let told = |variable, kind, count| chosen(&selection(variable, kind, count), &backends);
        assert_eq!(told(None, Some(Kind::CUDA), Some(1)), "cuda, the first with a device");
        assert_eq!(told(Some("host"), Some(Kind::HOST), Some(1)), "host, named by ANYACCEL_BACKEND");
        assert_eq!(told(None, Some(Kind::CUDA), Some(0)), "cuda, which has no device (host is used only when named)");
        assert_eq!(told(None, None, None), "none: no accelerator found (host is used only when named)");
    }
}
