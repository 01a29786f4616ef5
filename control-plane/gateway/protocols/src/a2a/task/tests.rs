//! Events and outcomes of calls as updates of tasks.

use asp_call::call::event::LogLevel;

use super::*;

fn ids() -> TaskIds {
    TaskIds { task: "t".into(), context: "c".into() }
}

fn update(event: Event, appends: bool) -> Option<StreamEvent> {
    ids().event(&LoggedEvent::first(6, 7, event), appends, Some("COUNTING"))
}

#[test]
fn progress_status_and_log_are_changes_of_a_working_task() {
    let progress = Event::Progress {
        progress: 0.5.into(),
        total: Some(1.0.into()),
        message: Some("half".into()),
        gauges: [("rows".to_owned(), 3.0)].into(),
    };
    let log = Event::Log { level: LogLevel::Info, logger: None, data: json!({"a": 1}).into() };
    let status = Event::Status { phase: "QUEUED".into(), message: None };
    let half = parts::of_progress("half", Some("COUNTING"), Some(json!(50).into()));
    let queued = parts::of_progress("QUEUED", Some("QUEUED"), None);
    for (event, parts, name, value) in [
        (progress, Some(half), "asp/progress", json!({"progress": 0.5, "total": 1, "gauges": {"rows": 3.0}})),
        (log, None, "asp/log", json!({"level": "info", "logger": null, "data": {"a": 1}})),
        (status, Some(queued), "asp/phase", json!("QUEUED")),
    ] {
        let Some(StreamEvent::Status(update)) = update(event, false) else { panic!("{name}") };
        assert_eq!((update.task_id.as_str(), update.context_id.as_str(), update.is_final), ("t", "c", false));
        assert_eq!((update.status.state, update.status.timestamp), (TaskState::Working, Some(Timestamp(7))));
        let message = parts.map(|parts| ids().message("6", parts));
        assert_eq!(update.status.message, message, "{name}");
        let metadata = update.metadata.unwrap();
        assert_eq!((metadata.get(name), metadata.get(GENERATION)), (Some(&value), Some(&json!(8))));
    }
}

#[test]
fn chunks_are_appended_to_the_result_and_artifacts_are_files() {
    for appends in [false, true] {
        let Some(StreamEvent::Artifact(chunk)) = update(Event::Chunk { text: "x".into() }, appends) else {
            panic!("no artifact")
        };
        assert_eq!(
            (chunk.artifact.artifact_id.as_str(), chunk.append, chunk.last_chunk),
            (RESULT, appends, false)
        );
        assert_eq!(chunk.artifact.parts, [parts::text("x")]);
    }
    let content_type = Some("text/csv".to_owned());
    let event = Event::Artifact { uri: "asp-artifact://1/a.csv".into(), content_type, description: None };
    let Some(StreamEvent::Artifact(file)) = update(event, true) else { panic!("no artifact") };
    assert_eq!((file.append, file.last_chunk), (false, true));
    let part = &file.artifact.parts[0];
    assert_eq!(part.content, PartContent::Url("asp-artifact://1/a.csv".into()));
    assert_eq!((part.media_type.as_deref(), part.filename.as_deref()), (Some("text/csv"), Some("a.csv")));
    assert!(update(Event::Answered { id: "a".into() }, false).is_none());
    assert!(matches!(update(Event::Resumed, false), Some(StreamEvent::Status(_))));
}

#[test]
fn the_amount_of_progress_is_a_percentage_if_there_is_a_total() {
    let of = |progress: f64, total: Option<f64>| {
        percentage(&progress.into(), total.map(Amount::from).as_ref()).map(|shown| shown.text().to_owned())
    };
    assert_eq!(of(18.0, Some(100.0)).as_deref(), Some("18"));
    assert_eq!(of(1.0, Some(8.0)).as_deref(), Some("12.5"));
    assert_eq!((of(3.0, None), of(3.0, Some(0.0)), of(f64::INFINITY, Some(1.0))), (None, None, None));
}

#[test]
fn the_phase_of_a_task_is_that_of_its_last_status() {
    let status = |number: u64, phase: &str| {
        LoggedEvent::first(number, 0, Event::Status { phase: phase.into(), message: None })
    };
    let resumed = LoggedEvent::first(2, 0, Event::Resumed);
    assert_eq!(phase(&[status(0, "A"), status(1, "B"), resumed.clone()]), Some("B"));
    assert_eq!(phase(&[resumed]), None);
}

#[test]
fn a_task_with_a_page_needs_its_user_to_sign_in() {
    let page = Ask::Page { message: "?".into(), url: "https://a".into() };
    for (ask, state) in [(page, TaskState::AuthRequired), (Ask::Roots, TaskState::InputRequired)] {
        assert_eq!(state_of_question(&Question { id: "a".into(), ask }), state);
    }
}
