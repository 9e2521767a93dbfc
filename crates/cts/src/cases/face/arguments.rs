//! Device arguments: forms, defaults, and the errors of each wrong one, the same before and after the start.

use super::{Face, out_of_range};
use crate::case::{Case, Outcome, errs, expect, fail, same};
use crate::env::Env;
use crate::words::plain;
use anyaccel::{Device, DeviceArg, Error, ErrorClass, Runtime};
use anyaccel_hal::Kind;

pub(super) const CASES: &[Case] = &[
    Case::face("arguments.forms", &["argument.forms"], forms).devices(2),
    Case::face("arguments.none-is-current", &["argument.none"], none_is_current).devices(2),
    Case::face("arguments.wrong", &["argument.negative", "argument.range", "argument.kind", "argument.text"], wrong)
        .devices(2),
    Case::face("arguments.fresh", &["argument.fresh", "argument.range", "sync.fresh"], fresh).devices(2),
    Case::face("arguments.set-device-index", &["device.set-index"], set_device_index).devices(2),
    Case::face("arguments.device-index", &["device.guard-argument"], device_index).devices(2),
];

fn forms(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let kind = face.kind();
    let text = format!("{kind}:1");
    let one = Device::new(kind, Some(1));
    let forms: [DeviceArg<'_>; 11] = [
        1_i32.into(),
        1_i64.into(),
        1_u8.into(),
        1_u32.into(),
        1_usize.into(),
        one.into(),
        text.as_str().into(),
        (&text).into(),
        Some(1).into(),
        Some(one).into(),
        DeviceArg::Index(1),
    ];
    for form in forms {
        let stream = face.runtime.current_stream(form)?;
        same("argument.forms", &format!("the device that {form:?} names"), stream.device(), one)?;
    }
    same("argument.forms", "a device's text", one.to_string(), text.clone())?;
    same("argument.forms", "a text's device", text.parse::<Device>()?, one)
}

fn none_is_current(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let kind = face.kind();
    for index in [1, 0, 1] {
        face.runtime.set_device_index(index)?;
        let forms: [DeviceArg<'_>; 4] =
            [().into(), None::<i32>.into(), kind.name().into(), Device::new(kind, None).into()];
        for form in forms {
            let named = face.runtime.current_stream(form)?.device_index();
            same("argument.none", &format!("the device that {form:?} names"), named, index)?;
        }
    }
    Ok(())
}

type Call = (&'static str, fn(&Runtime, DeviceArg<'_>) -> anyaccel::Result<()>);

/// Functions that take a device.
const CALLS: &[Call] = &[
    ("synchronize", |runtime, device| runtime.synchronize(device)),
    ("get_device_properties", |runtime, device| runtime.get_device_properties(device).map(drop)),
    ("get_device_name", |runtime, device| runtime.get_device_name(device).map(drop)),
    ("get_device_capability", |runtime, device| runtime.get_device_capability(device).map(drop)),
    ("current_stream", |runtime, device| runtime.current_stream(device).map(drop)),
    ("current_stream_id", |runtime, device| runtime.current_stream_id(device).map(drop)),
    ("default_stream", |runtime, device| runtime.default_stream(device).map(drop)),
    ("Stream", |runtime, device| runtime.stream(device).map(drop)),
    ("get_memory_info", |runtime, device| runtime.get_memory_info(device).map(drop)),
    ("alloc_on", |runtime, device| runtime.alloc_on(device, 64).map(drop)),
    ("can_device_access_peer", |runtime, device| runtime.can_device_access_peer(device, 0).map(drop)),
    ("utilization", |runtime, device| runtime.utilization(device).map(drop)),
];

/// Checks every wrong argument of a call and returns the errors. Without `counted` the runtime is fresh and its count needs a
/// start, so that only the sign of an index can be wrong.
fn wrong_ones(runtime: &Runtime, kind: Kind, count: u32, counted: bool, (name, call): &Call) -> Outcome<Vec<Error>> {
    let other = if kind == Kind::CUDA { Kind::HIP } else { Kind::CUDA };
    let mut seen = Vec::new();
    let mut check = |rule: &str, what: &str, device: DeviceArg<'_>, right: &dyn Fn(&Error) -> bool| -> Outcome {
        let result = call(runtime, device);
        if let Err(error) = &result {
            seen.push(error.clone());
        }
        errs(rule, &format!("{name}({device:?})"), what, result, right)
    };
    let beyond = [i64::from(count), i64::from(count) + 7, i64::MAX].into_iter().filter(|_| counted);
    for index in [-1_i64, i64::MIN].into_iter().chain(beyond) {
        let right = |error: &Error| {
            matches!(error, Error::IndexOutOfRange { index: seen, count: known }
                if *seen == index && known.is_none_or(|known| known == count))
        };
        let rule = if index < 0 { "argument.negative" } else { "argument.range" };
        check(rule, "a range error that names index and count", index.into(), &right)?;
    }
    if counted {
        let beyond = Device::new(kind, Some(count));
        check("argument.range", "a range error", beyond.into(), &|error| {
            matches!(error, Error::IndexOutOfRange { .. })
        })?;
    }
    for device in [Device::new(other, Some(0)), Device::new(Kind::CPU, None)] {
        let right = |error: &Error| matches!(error, Error::WrongKind { given, current } if *given == device && *current == kind);
        check("argument.kind", "an error that names both kinds", device.into(), &right)?;
        check("argument.kind", "an error that names both kinds", device.to_string().as_str().into(), &right)?;
    }
    for text in ["", "nonsense", "nonsense:0", "CUDA", " cpu", "1"] {
        let right = |error: &Error| matches!(error, Error::UnknownDeviceType { text: seen, known } if seen == text && known.len() > 5);
        check("argument.text", "an error that lists the types", text.into(), &right)?;
    }
    for tail in ["", "x", "-1", "+1", " 1", "1 ", "01", "1:2", "99999999999999999999"] {
        let text = format!("{kind}:{tail}");
        let right = |error: &Error| matches!(error, Error::InvalidDeviceString { text: seen } if *seen == text);
        check("argument.text", "an invalid device string", text.as_str().into(), &right)?;
    }
    Ok(seen)
}

fn wrong(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    face.runtime.current_stream(())?;
    let count = face.runtime.device_count();
    for call in CALLS {
        wrong_ones(&face.runtime, face.kind(), count, true, call)?;
    }
    let classes = [
        (Error::IndexOutOfRange { index: 9, count: Some(2) }, ErrorClass::Accelerator),
        (Error::WrongKind { given: Device::new(Kind::CPU, None), current: face.kind() }, ErrorClass::Value),
        (Error::UnknownDeviceType { text: "x".into(), known: Vec::new() }, ErrorClass::Runtime),
    ];
    for (error, class) in classes {
        same("argument.range", &format!("the class of {error:?}"), error.class(), class)?;
    }
    Ok(())
}

/// The same errors before the start as after it, and no start.
fn fresh(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let (runtime, kind) = (&face.runtime, face.kind());
    let count = runtime.device_count();
    for call in CALLS {
        let before = wrong_ones(runtime, kind, count, face.driver.fork_safe_probe(), call)?;
        let what = format!("whether {} with a wrong argument started the runtime", call.0);
        same("argument.fresh", &what, runtime.is_started(), false)?;
        let other = Face::new(env)?;
        other.runtime.current_stream(())?;
        let after = wrong_ones(&other.runtime, kind, count, true, call)?;
        if face.driver.fork_safe_probe()
            && let Some((before, after)) = before.iter().zip(&after).find(|(before, after)| before != after)
        {
            return fail("argument.range", format!("{} to fail as after the start: {after:?}", call.0), plain(&before));
        }
    }
    Ok(())
}

fn set_device_index(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let (runtime, kind) = (&face.runtime, face.kind());
    let expected = |error: &Error| {
        let text = "with a specified index or an integer, but got:";
        matches!(error, Error::ExpectedIndex { .. }) && error.to_string().contains(text)
    };
    for negative in [-1_i64, -100, i64::MIN] {
        runtime.set_device_index(negative)?;
    }
    for _ in 0..2 {
        errs("device.set-index", "set_device_index(None)", "ExpectedIndex", runtime.set_device_index(()), expected)?;
        errs("device.set-index", "a kind alone", "ExpectedIndex", runtime.set_device_index(kind.name()), expected)?;
        let bare = Device::new(kind, None);
        errs("device.set-index", "a device without index", "ExpectedIndex", runtime.set_device_index(bare), expected)?;
        let (beyond, range) = (face.beyond(), out_of_range(face.beyond()));
        errs("device.set-index", "an index out of range", "a range error", runtime.set_device_index(beyond), range)?;
        let kinds = |error: &Error| matches!(error, Error::WrongKind { .. });
        errs("device.set-index", "another kind", "WrongKind", runtime.set_device_index("cpu:0"), kinds)?;
        same("device.set-index", "the current device, untouched", runtime.current_device_index()?, 0)?;
        // The second round is after the start.
        runtime.current_stream(())?;
    }
    for (form, index) in
        [(DeviceArg::from(1), 1), (format!("{kind}:0").as_str().into(), 0), (Device::new(kind, Some(1)).into(), 1)]
    {
        runtime.set_device_index(form)?;
        same("device.set-index", "the current device", runtime.current_device_index()?, index)?;
        runtime.set_device_index(-1)?;
        same("device.set-index", "the current device after a negative index", runtime.current_device_index()?, index)?;
    }
    #[expect(deprecated, reason = "the old names are part of the contract")]
    {
        runtime.set_device_idx(0)?;
        same("device.set-index", "the current device by its old name", runtime.current_device_idx()?, 0)?;
    }
    let other = std::thread::scope(|scope| scope.spawn(|| runtime.current_device_index()).join());
    expect("device.set-index", matches!(other, Ok(Ok(0))), "0 on a thread that never chose", plain(&other))
}

fn device_index(env: &Env) -> Outcome {
    let face = Face::new(env)?;
    let runtime = &face.runtime;
    for _ in 0..2 {
        drop(runtime.device_index(None)?);
        for index in [-1, i64::from(face.beyond()), i64::MAX] {
            let right = |error: &Error| matches!(error, Error::IndexOutOfRange { index: seen, .. } if *seen == index);
            errs(
                "device.guard-argument",
                &format!("device_index({index})"),
                "a range error",
                runtime.device_index(index),
                right,
            )?;
        }
        same("device.guard-argument", "the current device, untouched", runtime.current_device_index()?, 0)?;
        runtime.current_stream(())?;
    }
    Ok(())
}
