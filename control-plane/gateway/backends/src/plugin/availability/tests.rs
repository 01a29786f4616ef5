//! Tests of the known availability at one and at several runtimes.

use asp_runtime_client::runtimes::{RuntimeTarget, Runtimes};

use super::*;

fn runtimes(count: usize) -> (Runtimes, Vec<Arc<Runtime>>) {
    let target =
        |n| RuntimeTarget { languages: vec!["python".into()], url: format!("unix:/{n}"), peer: None };
    let runtimes = Runtimes::new((0..count).map(target).collect()).unwrap();
    let all = runtimes.all().borrow().to_vec();
    (runtimes, all)
}

fn plugin(version: &str, digest: &str) -> PluginRef {
    PluginRef {
        id: "sweep".into(),
        version: version.into(),
        language: "python".into(),
        artifact_sha256: digest.into(),
        ..PluginRef::default()
    }
}

fn wanted(plugins: &[(&str, &str)]) -> HashMap<PluginRef, PluginNeeds> {
    let wanted = PluginNeeds { hints: RuntimeHints::default(), longest: Duration::ZERO };
    plugins.iter().map(|(version, digest)| (plugin(version, digest), wanted.clone())).collect()
}

fn impossible() -> Availability {
    Availability::Impossible("not_installed: it".into())
}

#[tokio::test]
async fn a_version_is_drained_when_the_last_spec_of_it_is_gone_and_not_when_its_pin_changes() {
    let (_runtimes, all) = runtimes(2);
    let plugins = KnownPlugins::default();
    plugins.replace(wanted(&[("1.0.0", "a"), ("1.0.0", "b")]), &all);
    plugins.replace(wanted(&[("1.0.0", "b")]), &all);
    assert!(plugins.take_gone(&all[0]).is_none(), "the runtime drains by id and version");
    plugins.replace(wanted(&[("1.0.0", "c")]), &all);
    assert!(plugins.take_gone(&all[0]).is_none(), "the pin changed");
    plugins.replace(wanted(&[("1.1.0", "c")]), &all);
    for runtime in &all {
        assert_eq!(plugins.take_gone(runtime).unwrap().plugin.version, "1.0.0");
        assert!(plugins.take_gone(runtime).is_none());
    }
}

#[tokio::test]
async fn a_plugin_is_impossible_where_all_say_so_that_have_said_anything() {
    let (_runtimes, all) = runtimes(2);
    let plugins = KnownPlugins::default();
    let sweep = plugin("1.0.0", "a");
    let is_hidden = || plugins.is_impossible(|| Some(sweep.clone()));
    plugins.replace(wanted(&[("1.0.0", "a")]), &all[..1]);
    assert_eq!((is_hidden(), plugins.state(&sweep)), (false, Availability::Unheard));
    let learnt = plugins.learn(&all[0], &sweep, impossible()).unwrap();
    assert_eq!(learnt, AnswerEffect { before: Availability::Unheard, is_offered: false });
    assert!(is_hidden());
    plugins.members(&all);
    assert!(is_hidden(), "one that is new says nothing yet");
    assert!(plugins.learn(&all[1], &sweep, Availability::Ready).unwrap().is_offered);
    assert_eq!((is_hidden(), plugins.state(&sweep), plugins.changes()), (false, Availability::Ready, 2));
    assert!(plugins.learn(&all[1], &sweep, Availability::Ready).is_none(), "nothing new");
    plugins.learn(&all[1], &sweep, Availability::Troubled("draining: it".into())).unwrap();
    assert!(!is_hidden(), "trouble passes");
    plugins.members(&all[..1]);
    assert!(is_hidden(), "who could run it is no runtime of ours any more");
}

#[tokio::test]
async fn a_call_goes_where_its_plugin_is_ready_and_not_where_it_is_refused() {
    let (runtimes, all) = runtimes(3);
    let fleet = runtimes.get("python").unwrap();
    let plugins = KnownPlugins::default();
    let sweep = plugin("1.0.0", "a");
    plugins.replace(wanted(&[("1.0.0", "a")]), &all);
    all.iter().for_each(|runtime| runtime.record_result(None));
    let chosen = |refused: &[Arc<Runtime>]| {
        let taken = plugins.choose(fleet, &sweep, None, refused)?;
        all.iter().position(|runtime| Arc::ptr_eq(runtime, &taken))
    };
    let always = |refused: &[Arc<Runtime>]| {
        let first = chosen(refused);
        (0..32).for_each(|_| assert_eq!(chosen(refused), first));
        first
    };
    plugins.learn(&all[0], &sweep, impossible());
    plugins.learn(&all[2], &sweep, Availability::Ready);
    assert_eq!(always(&[]), Some(2), "it is there");
    plugins.refuses(&all[2], Some("sweep@1.0.1"), true);
    assert_eq!(always(&[]), Some(2), "another version is quarantined");
    plugins.refuses(&all[2], Some("sweep@1.0.0"), true);
    assert_eq!(always(&[]), Some(1), "it is quarantined there");
    assert_eq!(always(&all[1..2]), Some(2), "the other one has refused the call");
    assert_eq!(always(&all[1..]), Some(0), "and at last who cannot, which says why");
    assert_eq!(always(&all), None);
    plugins.refuses(&all[2], None, false);
    assert_eq!(always(&[]), Some(2));
}
