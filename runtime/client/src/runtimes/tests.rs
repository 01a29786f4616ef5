//! Tests of the runtimes of a language, and of the choice between several.

use tonic::Status;

use super::*;

impl Fleet {
    pub(in crate::runtimes) fn members(&self) -> Arc<Vec<Arc<Runtime>>> {
        self.members.load_full()
    }
}

fn fleet(count: usize) -> (Runtimes, Arc<Fleet>, Vec<Arc<Runtime>>) {
    let target =
        |n| RuntimeTarget { languages: vec!["python".into()], url: format!("unix:/{n}"), peer: None };
    let runtimes = Runtimes::new((0..count).map(target).collect()).unwrap();
    let fleet = runtimes.get("python").unwrap().clone();
    let members = fleet.members().to_vec();
    members.iter().for_each(|runtime| runtime.record_result(None));
    (runtimes, fleet, members)
}

fn ready(_: &Runtime) -> Suitability {
    Suitability::Ready
}

/// Number of `calls` that each runtime gets if all of them stay open.
fn spread(fleet: &Fleet, members: &[Arc<Runtime>], calls: usize) -> Vec<usize> {
    let taken: Vec<RuntimePermit> = (0..calls).filter_map(|_| fleet.choose(None, &[], ready)).collect();
    assert_eq!(taken.len(), calls);
    members.iter().map(|member| member.load().0).collect()
}

#[tokio::test]
async fn calls_that_stay_are_spread_evenly_over_two_and_nearly_over_more() {
    let (_runtimes, two, members) = fleet(2);
    assert_eq!(spread(&two, &members, 100), [50, 50]);
    assert_eq!(spread(&two, &members, 0), [0, 0], "they have ended");
    let (_runtimes, eight, members) = fleet(8);
    let calls = spread(&eight, &members, 800);
    assert!(calls.iter().all(|calls| (90..=110).contains(calls)), "{calls:?}");
}

#[tokio::test]
async fn between_equals_the_one_is_taken_where_fewer_wait() {
    let (_runtimes, fleet, members) = fleet(2);
    members[0].waiting(7);
    for _ in 0..32 {
        assert!(Arc::ptr_eq(&fleet.choose(None, &[], ready).unwrap(), &members[1]));
    }
    // What is seconds old makes no hot spot.
    assert_eq!(spread(&fleet, &members, 10), [5, 5]);
}

#[tokio::test]
async fn a_connection_that_is_worse_is_chosen_when_there_is_no_better_one() {
    let (_runtimes, fleet, members) = fleet(3);
    let chosen = |refused: &[Arc<Runtime>]| {
        let taken = fleet.choose(None, refused, ready).unwrap();
        members.iter().position(|member| Arc::ptr_eq(member, &taken)).unwrap()
    };
    members[0].record_result(Some(&Status::unavailable("gone")));
    let multiplexer = members[1].multiplexer().await;
    assert!(multiplexer.is_err(), "nobody is there");
    for _ in 0..32 {
        assert_eq!(chosen(&[]), 2);
    }
    let failing: Vec<usize> = (0..64).map(|_| chosen(&members[2..])).collect();
    assert!(failing.contains(&0) && failing.contains(&1), "both may be back");
    assert!(fleet.choose(None, &members, ready).is_none());
    assert!(fleet.retry_at().is_none(), "one answers");
    members[2].record_result(Some(&Status::unavailable("gone")));
    assert_eq!(fleet.retry_at(), members.iter().filter_map(|member| member.retry_at()).min());
}

#[tokio::test]
async fn a_call_keeps_to_its_own_runtime_while_that_answers_however_busy_it_is() {
    let (_runtimes, fleet, members) = fleet(2);
    let own = &members[0];
    let _busy: Vec<RuntimePermit> = (0..100).map(|_| RuntimePermit::of(own.clone())).collect();
    let chosen = |refused: &[Arc<Runtime>]| fleet.choose(Some(own), refused, ready).unwrap().0.clone();
    assert!(Arc::ptr_eq(&chosen(&[]), own));
    assert!(Arc::ptr_eq(&chosen(&members[..1]), &members[1]), "it has refused");
    own.record_result(Some(&Status::unavailable("gone")));
    assert!(Arc::ptr_eq(&chosen(&[]), &members[1]), "it is gone");
    own.record_result(None);
    fleet.replace(vec![members[1].clone()]);
    assert!(Arc::ptr_eq(&chosen(&[]), &members[1]), "it is none of ours any more");
}

#[tokio::test]
async fn what_cannot_run_a_plugin_is_worse_than_what_does_not_answer() {
    let (_runtimes, fleet, members) = fleet(2);
    members[0].record_result(Some(&Status::unavailable("gone")));
    let suits = |runtime: &Runtime| match std::ptr::eq(runtime, Arc::as_ptr(&members[1])) {
        true => Suitability::Impossible,
        false => Suitability::Ready,
    };
    assert!(Arc::ptr_eq(&fleet.choose(None, &[], suits).unwrap(), &members[0]));
    assert!(Arc::ptr_eq(&fleet.choose(Some(&members[1]), &[], suits).unwrap(), &members[0]));
}

fn target(languages: &[&str], url: &str) -> RuntimeTarget {
    let languages = languages.iter().map(|language| (*language).to_owned()).collect();
    RuntimeTarget { languages, url: url.into(), peer: None }
}

#[tokio::test]
async fn a_runtime_is_reached_by_socket_or_mutual_tls_only() {
    assert!(Runtimes::new(vec![target(&["python"], "unix:/run/asp/runtime.sock")]).is_ok());
    for url in ["http://127.0.0.1:1", "https://127.0.0.1:1", "127.0.0.1:1", ""] {
        assert!(Runtimes::new(vec![target(&["python"], url)]).is_err(), "{url}");
    }
}

#[tokio::test]
async fn a_language_has_several_runtimes_each_once_and_not_too_many() {
    let runtimes =
        Runtimes::new(vec![target(&["python", "node"], "unix:/a"), target(&["node"], "unix:/b")]).unwrap();
    let of = |language: &str| runtimes.get(language).unwrap().members().len();
    assert_eq!((of("python"), of("node"), runtimes.all().borrow().len()), (1, 2, 2));
    assert!(runtimes.get("python").unwrap().only().is_some() && runtimes.get("java").is_none());
    let same = Runtimes::new(vec![target(&["python"], "unix:/a"), target(&["node"], "unix:/a")]).unwrap();
    assert_eq!(same.all().borrow().len(), 1, "one process is one runtime");
    let twice = vec![target(&["python", "node"], "unix:/a"), target(&["node"], "unix:/a")];
    assert!(matches!(Runtimes::new(twice), Err(RuntimesError::Twice { language, .. }) if language == "node"));
    let many = |count: usize| (0..count).map(|n| target(&["node"], &format!("unix:/{n}"))).collect();
    assert!(Runtimes::new(many(MAX_RUNTIMES)).is_ok());
    assert!(matches!(Runtimes::new(many(MAX_RUNTIMES + 1)), Err(RuntimesError::TooMany(_))));
}
