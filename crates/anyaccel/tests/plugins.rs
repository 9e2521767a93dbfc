//! Vendors' plugins behind runtimes of their own: good ones work, bad ones are errors and nothing else.

#[path = "../../abi/tests/plugins/compile.rs"]
mod compile;

use anyaccel::hal::FaultKind;
use anyaccel::{Device, Error, Refusal, Runtime};
use std::path::{Path, PathBuf};

/// A plugin of a name of its own, since a name can be taken once in a process.
fn small(name: &str, definitions: &[&str]) -> PathBuf {
    let named = format!("NAME=\"{name}\"");
    let definitions: Vec<&str> = definitions.iter().copied().chain([named.as_str()]).collect();
    compile::small(env!("CARGO_TARGET_TMPDIR"), &format!("face_{name}"), &definitions)
}

fn runtime(path: &Path) -> Runtime {
    Runtime::builder().plugin(path).build().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_plugin_with_the_required_functions_alone_has_all_that_the_engine_gives() -> anyaccel::Result<()> {
    let path = small("plain", &[]);
    assert!("plain:1".parse::<Device>().is_err(), "nobody has loaded it");
    let runtime = runtime(&path);
    assert_eq!("plain:1".parse::<Device>()?.to_string(), "plain:1");
    assert!(!runtime.is_started());
    assert_eq!(
        (runtime.device_count(), runtime.current_accelerator(true).map(|d| d.to_string())),
        (2, Some("plain".into()))
    );
    runtime.set_device_index("plain:1")?;

    // Caching memory and its statistics.
    let first = runtime.buffer_from(b"to be or not to be")?;
    assert_eq!(first.to_vec()?[..18], b"to be or not to be"[..]);
    drop(first);
    assert!(runtime.memory_reserved(())? > 0);

    // A built-in that the device lacks, computed by the host.
    let counts = runtime.zeros(2048)?;
    let data = runtime.buffer_from(b"abab")?;
    let stream = runtime.stream(())?;
    runtime.synchronize(())?;
    stream.histogram(&counts.all(), &data.all())?;
    stream.synchronize()?;
    assert_eq!(counts.to_vec()?[8 * usize::from(b'b')], 2);
    Ok(())
}

#[test]
fn two_runtimes_may_use_one_plugin_and_two_plugins_may_not_have_one_name() {
    let path = small("shared", &[]);
    let (one, other) = (runtime(&path), runtime(&path));
    assert!(one != other && one.device_count() == 2 && other.device_count() == 2);
    let copy = path.with_file_name("libface_shared_copy.so");
    std::fs::copy(&path, &copy).expect("a copy");
    match Runtime::builder().plugin(&copy).build() {
        Err(Error::Plugin(error)) => {
            let text = error.to_string();
            assert!(matches!(error.reason, Refusal::KindTaken { .. }), "{text}");
            assert!(text.contains("'shared'") && text.contains("libface_shared.so"), "{text}");
        }
        other => panic!("{other:?}"),
    }
    let host = small("host", &["KIND=ANYACCEL_KIND_HOST"]);
    let error = Runtime::builder().plugin(host).build().expect_err("the name is taken").to_string();
    assert!(error.contains("'host'") && error.contains("a backend of this program"), "{error}");
}

#[test]
fn what_is_no_plugin_is_an_error_in_one_line() {
    for path in ["relative.so", "/no/such/library.so"] {
        let error = Runtime::builder().plugin(path).build().expect_err("refused").to_string();
        assert!(error.contains(path) && error.lines().count() == 1, "{error:?}");
    }
}

#[test]
fn an_error_from_every_call_is_an_error_of_every_call() {
    let runtime = runtime(&small("erring", &["ERRORS"]));
    assert_eq!(runtime.device_count(), 2);
    for _ in 0..2 {
        match runtime.current_stream(()) {
            Err(Error::StartFailed { fault, .. }) => {
                assert_eq!((fault.kind, fault.api, fault.code), (FaultKind::Driver, "npu_start", -5));
                assert_eq!(fault.note.as_deref(), Some("it is broken"));
            }
            other => panic!("{other:?}"),
        }
        assert!(!runtime.is_started());
    }
}

#[test]
fn an_error_from_every_call_behind_the_start_is_told_with_its_name() {
    let runtime = runtime(&small("erring_later", &["ERRORS", "STARTS"]));
    let told = |error: Error, api: &str| {
        let text = error.to_string();
        assert!(text.contains(api) && text.contains("it is broken") && text.lines().count() == 1, "{api}: {text:?}");
    };
    told(runtime.zeros(64).expect_err("no memory"), "npu_");
    told(runtime.get_memory_info(()).expect_err("no numbers"), "npu_memory_info");
    told(runtime.stream(()).and_then(|stream| stream.synchronize()).expect_err("no stream"), "npu_");
    let _nothing_to_wait_for = runtime.synchronize(());
    assert_eq!(runtime.device_count(), 2);
}

#[test]
fn garbage_is_noticed_where_it_would_be_used() {
    let runtime = runtime(&small("garbage", &["GARBAGE"]));
    let error = runtime.zeros(4096).expect_err("no memory at such an address").to_string();
    assert!(error.contains("H3: the plugin gave"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    // Marks that do not rise, numbers that the ABI has not: answers or errors, nothing worse.
    let _any = runtime.stream(()).and_then(|stream| stream.query());
    let _any = runtime.stream(()).and_then(|stream| stream.synchronize());
    let _any = runtime.synchronize(());
    let event = runtime.event(anyaccel::EventOptions::default());
    let _any = event.and_then(|event| event.record(None).and_then(|()| event.query()));
}

#[test]
fn more_devices_than_can_be_named_are_none() {
    let runtime = runtime(&small("many", &["DEVICES=70000"]));
    assert_eq!(runtime.device_count(), 0);
    let error = runtime.current_stream(()).expect_err("too many").to_string();
    assert!(error.contains("70000 devices") && error.contains("65536"), "{error}");
    let most = self::runtime(&small("most", &["DEVICES=65536"]));
    assert_eq!(most.device_count(), 65536);
    assert!(most.set_device_index(65535).is_ok());
}

#[test]
fn a_plugin_that_makes_no_driver_says_why() {
    let runtime = runtime(&small("driverless", &["NO_DRIVERS"]));
    assert_eq!(runtime.device_count(), 0);
    let error = runtime.current_stream(()).expect_err("no driver").to_string();
    assert!(error.contains("npu_create") && error.contains("no firmware"), "{error}");
}
