//! Plugins and the process-wide runtime, which is one for a process: so this is one test.

#[path = "../../abi/tests/plugins/compile.rs"]
mod compile;

use anyaccel::{Device, Error, Kind, Refusal, Runtime, load_plugin, plugins};

fn small(name: &str, definitions: &[&str]) -> std::path::PathBuf {
    compile::small(env!("CARGO_TARGET_TMPDIR"), &format!("global_{name}"), definitions)
}

#[test]
fn a_plugin_that_was_loaded_is_chosen_and_named() -> anyaccel::Result<()> {
    assert_eq!(plugins(), []);
    let bad = load_plugin("/no/such/library.so").expect_err("refused");
    assert!(matches!(bad, Error::Plugin(_)) && bad.to_string().starts_with("Plugin /no/such/library.so: "), "{bad}");

    // A runtime of its own uses it first, which does not make the process-wide one choose it.
    let npu = small("npu", &[]);
    let own = Runtime::builder().plugin(&npu).build()?;
    assert_eq!(own.device_count(), 2);
    assert_eq!(load_plugin(&npu)?.name(), "npu");
    let twice = load_plugin(&npu).expect_err("once");
    assert!(
        matches!(&twice, Error::Plugin(error) if error.reason == Refusal::Twice { kind: own.kind().unwrap() }),
        "{twice}"
    );

    // MTIA comes before private kinds, whatever was loaded first.
    let mtia = small("mtia", &["NAME=\"mtia\"", "KIND=ANYACCEL_KIND_MTIA", "DEVICES=1"]);
    assert_eq!(load_plugin(&mtia)?, Kind::MTIA);
    let told: Vec<(String, bool)> = plugins()
        .into_iter()
        .map(|p| (p.outcome.map(Kind::name).unwrap_or("refused").into(), p.from_environment))
        .collect();
    assert_eq!(told, [("npu".into(), false), ("mtia".into(), false)]);

    // Where there is a card of a vendor that comes first, it does.
    let order: Vec<Kind> = anyaccel::backends().into_iter().map(|backend| backend.kind).collect();
    let at = |name: &str| order.iter().position(|kind| kind.name() == name);
    assert!(at("mtia") < at("npu") && at("npu") < at("host"), "{order:?}");
    let first = anyaccel::current_accelerator(true).map(Device::kind);
    assert!(first == Some(Kind::MTIA) || first.is_some_and(|kind| order[..at("mtia").unwrap()].contains(&kind)));
    if first == Some(Kind::MTIA) {
        assert_eq!(anyaccel::device_count(), 1);
    }
    let late = load_plugin(small("late", &["NAME=\"late\""])).expect_err("the runtime exists");
    assert!(matches!(late, Error::Registration { .. }) && late.to_string().contains("used already"), "{late}");
    assert!("late:0".parse::<Device>().is_err());
    assert_eq!("npu:1".parse::<Device>()?.index(), Some(1));
    Ok(())
}
