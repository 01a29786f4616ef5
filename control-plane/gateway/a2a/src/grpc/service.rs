//! The services of both versions: methods by their paths, and their messages as bytes.

use prost::Message as _;

use super::{card, v03, v10};
use crate::error::{A2aError, A2aFailure};
use crate::model::{A2aAnswer, OperationKind, Request, StreamEvent};
use crate::version::Generation;

const SERVICES: [(&str, Generation); 2] =
    [("/lf.a2a.v1.A2AService/", Generation::V10), ("/a2a.v1.A2AService/", Generation::V03)];

/// Method of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrpcMethod {
    pub generation: Generation,
    pub kind: OperationKind,
}

impl GrpcMethod {
    /// Returns the method at a path, `None` if there is none.
    pub fn at(path: &str) -> Option<GrpcMethod> {
        let in_service = |(service, generation): &(&str, Generation)| {
            path.strip_prefix(*service).map(|name| (name, *generation))
        };
        let (name, generation) = SERVICES.iter().find_map(in_service)?;
        let kind = match (name, generation) {
            ("SendMessage", _) => OperationKind::Send,
            ("SendStreamingMessage", _) => OperationKind::Stream,
            ("GetTask", _) => OperationKind::GetTask,
            ("ListTasks", Generation::V10) => OperationKind::ListTasks,
            ("CancelTask", _) => OperationKind::CancelTask,
            ("SubscribeToTask", Generation::V10) | ("TaskSubscription", Generation::V03) => {
                OperationKind::Subscribe
            }
            ("CreateTaskPushNotificationConfig", _) => OperationKind::CreatePush,
            ("GetTaskPushNotificationConfig", _) => OperationKind::GetPush,
            ("ListTaskPushNotificationConfigs", Generation::V10)
            | ("ListTaskPushNotificationConfig", Generation::V03) => OperationKind::ListPush,
            ("DeleteTaskPushNotificationConfig", _) => OperationKind::DeletePush,
            ("GetExtendedAgentCard", Generation::V10) | ("GetAgentCard", Generation::V03) => {
                OperationKind::ExtendedCard
            }
            _ => return None,
        };
        Some(GrpcMethod { generation, kind })
    }
}

/// Reads the message of a request.
pub fn decode_request(method: GrpcMethod, message: &[u8]) -> Result<Request, A2aFailure> {
    match method.generation {
        Generation::V10 => v10::request::decode(method.kind, message),
        Generation::V03 => v03::request::decode(method.kind, message),
    }
}

/// Writes the message of an answer.
pub fn encode_answer(generation: Generation, answer: &A2aAnswer) -> Result<Vec<u8>, A2aFailure> {
    Ok(match (generation, answer) {
        (Generation::V10, A2aAnswer::Sent(result)) => v10::encode_sent(result)?.encode_to_vec(),
        (Generation::V03, A2aAnswer::Sent(result)) => v03::encode_sent(result)?.encode_to_vec(),
        (Generation::V10, A2aAnswer::Task(task)) => v10::encode_task(task)?.encode_to_vec(),
        (Generation::V03, A2aAnswer::Task(task)) => v03::encode_task(task)?.encode_to_vec(),
        (Generation::V10, A2aAnswer::Tasks(page)) => v10::encode_tasks(page)?.encode_to_vec(),
        // 0.3 has no list.
        (Generation::V03, A2aAnswer::Tasks(_)) => return Err(A2aError::MethodNotFound.into()),
        (Generation::V10, A2aAnswer::Push(config)) => v10::encode_push(config).encode_to_vec(),
        (Generation::V03, A2aAnswer::Push(config)) => v03::encode_push(config).encode_to_vec(),
        (Generation::V10, A2aAnswer::Pushes(page)) => v10::encode_pushes(page).encode_to_vec(),
        (Generation::V03, A2aAnswer::Pushes(page)) => v03::encode_pushes(page).encode_to_vec(),
        (_, A2aAnswer::Deleted) => Vec::new(),
        (Generation::V10, A2aAnswer::Card(card)) => card::encode_v10(card)?.encode_to_vec(),
        (Generation::V03, A2aAnswer::Card(card)) => card::encode_v03(card)?.encode_to_vec(),
    })
}

/// Writes the message of an event.
pub fn encode_event(generation: Generation, event: &StreamEvent) -> Result<Vec<u8>, A2aFailure> {
    Ok(match generation {
        Generation::V10 => v10::encode_event(event)?.encode_to_vec(),
        Generation::V03 => v03::encode_event(event)?.encode_to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use asp_json::Json;
    use prost::Message;

    use super::*;
    use crate::grpc::generated::{a2a::v1 as wire_v03, lf::a2a::v1 as wire_v10};
    use crate::model::{Operation, PushConfig, PushPage, SendResult, Task, TaskPage};

    /// The kinds of the methods of a service, by the names that its definition gives them.
    fn methods(package: &str, definition: &str) -> Vec<OperationKind> {
        let names = definition.lines().filter_map(|line| line.trim().strip_prefix("rpc ")?.split('(').next());
        let kinds = names.map(|name| {
            let method = GrpcMethod::at(&format!("/{package}.A2AService/{name}"));
            method.unwrap_or_else(|| panic!("{package} {name}")).kind
        });
        kinds.collect()
    }

    #[test]
    fn every_method_of_both_definitions_has_its_kind() {
        use OperationKind::*;
        let v10 = methods("lf.a2a.v1", include_str!("../../../../../proto/a2a/v1.proto"));
        let kinds = [
            Send,
            Stream,
            GetTask,
            ListTasks,
            CancelTask,
            Subscribe,
            CreatePush,
            GetPush,
            ListPush,
            ExtendedCard,
            DeletePush,
        ];
        assert_eq!(v10, kinds);
        let v03 = methods("a2a.v1", include_str!("../../../../../proto/a2a/v0_3.proto"));
        let kinds = kinds.into_iter().filter(|kind| *kind != ListTasks);
        assert_eq!(v03, kinds.collect::<Vec<_>>());
        for path in [
            "/lf.a2a.v1.A2AService/TaskSubscription",
            "/lf.a2a.v1.A2AService/GetAgentCard",
            "/a2a.v1.A2AService/ListTasks",
            "/a2a.v1.A2AService/SubscribeToTask",
            "/a2a.v1.A2AService/sendmessage",
            "/a2a.v1.A2AService/",
            "/a2a.v1.A2AService",
            "/a2a.v2.A2AService/GetTask",
        ] {
            assert_eq!(GrpcMethod::at(path), None, "{path}");
        }
    }

    #[test]
    fn requests_are_read_by_their_methods_and_no_other_bytes_are() {
        let get = wire_v10::GetTaskRequest { id: "t".into(), ..Default::default() }.encode_to_vec();
        let of = |kind| GrpcMethod { generation: Generation::V10, kind };
        let read = decode_request(of(OperationKind::GetTask), &get).unwrap();
        assert_eq!(read.operation, Operation::GetTask { id: "t".into(), history_length: None });
        let read = decode_request(of(OperationKind::Subscribe), &get).unwrap();
        assert_eq!(
            (read.generation, read.operation),
            (Generation::V10, Operation::Subscribe { id: "t".into() })
        );
        let old = wire_v03::GetTaskRequest { name: "tasks/t".into(), history_length: 0 }.encode_to_vec();
        let of_v03 = |kind| GrpcMethod { generation: Generation::V03, kind };
        let read = decode_request(of_v03(OperationKind::Subscribe), &old).unwrap();
        assert_eq!(
            (read.generation, read.operation),
            (Generation::V03, Operation::Subscribe { id: "t".into() })
        );
        for method in [of(OperationKind::Send), of_v03(OperationKind::Send)] {
            assert_eq!(decode_request(method, b"\xff").unwrap_err().error, A2aError::Parse);
            assert_eq!(decode_request(method, b"").unwrap_err().error, A2aError::InvalidParams);
        }
        let card = decode_request(of_v03(OperationKind::ExtendedCard), b"").unwrap();
        assert_eq!(card.operation, Operation::ExtendedCard);
        let list = decode_request(of_v03(OperationKind::ListTasks), b"").unwrap_err();
        assert_eq!(list.error, A2aError::MethodNotFound);
    }

    #[test]
    fn answers_are_messages_of_their_version() {
        fn id<M: Message + Default>(bytes: &[u8], id: impl Fn(M) -> String) -> String {
            id(M::decode(bytes).unwrap())
        }
        let task = Task { id: "t".into(), ..Task::default() };
        let answer = A2aAnswer::Task(task.clone());
        for generation in [Generation::V10, Generation::V03] {
            let bytes = encode_answer(generation, &answer).unwrap();
            assert_eq!(id(&bytes, |task: wire_v10::Task| task.id), "t");
            let sent = A2aAnswer::Sent(SendResult::Task(task.clone()));
            assert!(encode_answer(generation, &sent).unwrap().len() > bytes.len());
            assert!(encode_event(generation, &StreamEvent::Task(task.clone())).unwrap().len() > bytes.len());
            assert_eq!(encode_answer(generation, &A2aAnswer::Deleted).unwrap(), b"");
            let push = PushConfig { task_id: "t".into(), id: Some("c".into()), ..PushConfig::default() };
            let page = PushPage { configs: vec![push.clone()], ..PushPage::default() };
            let one = encode_answer(generation, &A2aAnswer::Push(push)).unwrap();
            assert!(encode_answer(generation, &A2aAnswer::Pushes(page)).unwrap().len() > one.len());
            let card = A2aAnswer::Card(Json::part(r#"{"name":"A"}"#));
            let bytes = encode_answer(generation, &card).unwrap();
            let name = match generation {
                Generation::V10 => id(&bytes, |card: wire_v10::AgentCard| card.name),
                Generation::V03 => id(&bytes, |card: wire_v03::AgentCard| card.name),
            };
            assert_eq!(name, "A");
        }
        let page = A2aAnswer::Tasks(TaskPage { tasks: vec![task], ..TaskPage::default() });
        let bytes = encode_answer(Generation::V10, &page).unwrap();
        assert_eq!(id(&bytes, |page: wire_v10::ListTasksResponse| page.tasks[0].id.clone()), "t");
        assert!(encode_answer(Generation::V03, &page).is_err());
    }
}
