//! The task that a request of A2A over gRPC is about, for its affinity.
//!
//! Refuses: to judge a message. One that cannot be read names no task, and the gateway refuses it.

use prost::encoding::decode_varint;

use crate::envelope::MAX_ID_BYTES;

/// Bytes before a message: the flag of compression and the length.
const PREFIX: usize = 5;
/// Fields of a `Message` of both versions.
const CONTEXT_OF_MESSAGE: u64 = 2;
const TASK_OF_MESSAGE: u64 = 3;

/// Number and content of the field that names the task of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskField {
    /// Id of the task, or of the context.
    Id(u64),
    /// Resource name of 0.3: `tasks/<id>`, perhaps with more segments.
    Name(u64),
    /// `Message`, whose own fields have the ids.
    Message(u64),
}

/// Returns the field for a method of gRPC; `None` if its requests name no task.
pub(crate) fn task_field(path: &[u8]) -> Option<TaskField> {
    let mut segments = path.split(|byte| *byte == b'?').next()?.split(|byte| *byte == b'/').skip(1);
    let is_v03 = segments.next()? == b"a2a.v1.A2AService";
    match (segments.next()?, is_v03) {
        (b"GetExtendedAgentCard" | b"GetAgentCard", _) => None,
        (b"SendMessage" | b"SendStreamingMessage", true) => Some(TaskField::Message(1)),
        (b"SendMessage" | b"SendStreamingMessage", false) => Some(TaskField::Message(2)),
        (_, true) => Some(TaskField::Name(1)),
        (b"ListTaskPushNotificationConfigs", false) => Some(TaskField::Id(1)),
        (b"CreateTaskPushNotificationConfig", false) => Some(TaskField::Id(3)),
        (_, false) => Some(TaskField::Id(2)),
    }
}

/// Returns the id of the task, or else of the context, in a request's body of one uncompressed message.
pub(crate) fn task(body: &[u8], field: TaskField) -> Option<&[u8]> {
    let (prefix, message) = body.split_at_checked(PREFIX)?;
    let message = prefix.starts_with(&[0]).then_some(message)?;
    let id = match field {
        TaskField::Id(number) => value(message, number)?,
        TaskField::Name(number) => {
            let id = value(message, number)?.strip_prefix(b"tasks/")?;
            id.split(|byte| *byte == b'/').next()?
        }
        TaskField::Message(number) => {
            let message = value(message, number)?;
            let id = |number| value(message, number).filter(|id| !id.is_empty());
            id(TASK_OF_MESSAGE).or_else(|| id(CONTEXT_OF_MESSAGE))?
        }
    };
    (1..=MAX_ID_BYTES).contains(&id.len()).then_some(id)
}

/// Returns the last value of a field of bytes (Protocol Buffers encoding); `None` also if the message is malformed.
fn value(mut message: &[u8], number: u64) -> Option<&[u8]> {
    let mut found = None;
    while !message.is_empty() {
        let key = decode_varint(&mut message).ok()?;
        let length = match key & 7 {
            0 => decode_varint(&mut message).map(|_| 0).ok()?,
            1 => 8,
            2 => usize::try_from(decode_varint(&mut message).ok()?).ok()?,
            5 => 4,
            _ => return None,
        };
        let (bytes, rest) = message.split_at_checked(length)?;
        if key == (number << 3) | 2 {
            found = Some(bytes);
        }
        message = rest;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const V10: &str = "/lf.a2a.v1.A2AService/";
    const V03: &str = "/a2a.v1.A2AService/";

    /// Returns a field of bytes.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        [[(number << 3) | 2, u8::try_from(bytes.len()).unwrap()].as_slice(), bytes].concat()
    }

    fn framed(message: &[u8]) -> Vec<u8> {
        [[0, 0, 0, 0, u8::try_from(message.len()).unwrap()].as_slice(), message].concat()
    }

    #[test]
    fn each_method_names_its_task_in_both_versions() {
        let tenant = field(1, b"acme");
        let of_id = [tenant.clone(), field(2, b"T1"), vec![0x18, 0x96, 0x01]].concat();
        let message = [field(1, b"m"), field(2, b"C1"), field(3, b"T1")].concat();
        let in_context = [field(2, b"C1"), field(3, b""), field(5, b"")].concat();
        for (path, message, id) in [
            (format!("{V10}GetTask"), of_id.clone(), Some("T1")),
            (format!("{V10}CancelTask?x"), of_id.clone(), Some("T1")),
            (format!("{V10}SubscribeToTask"), of_id.clone(), Some("T1")),
            (format!("{V10}SendMessage"), field(2, &message), Some("T1")),
            (format!("{V10}SendStreamingMessage"), field(2, &in_context), Some("C1")),
            (format!("{V10}ListTaskPushNotificationConfigs"), field(1, b"T1"), Some("T1")),
            (format!("{V10}CreateTaskPushNotificationConfig"), field(3, b"T1"), Some("T1")),
            (format!("{V10}GetTask"), tenant, None),
            (format!("{V03}GetTask"), field(1, b"tasks/T1"), Some("T1")),
            (format!("{V03}TaskSubscription"), field(1, b"tasks/T1"), Some("T1")),
            (
                format!("{V03}DeleteTaskPushNotificationConfig"),
                field(1, b"tasks/T1/pushNotificationConfigs/c"),
                Some("T1"),
            ),
            (format!("{V03}SendMessage"), field(1, &message), Some("T1")),
            (format!("{V03}GetTask"), field(1, b"T1"), None),
            (format!("{V03}GetTask"), field(1, b"tasks/"), None),
        ] {
            let found = task_field(path.as_bytes()).unwrap();
            assert_eq!(task(&framed(&message), found), id.map(str::as_bytes), "{path}");
        }
        for path in ["GetExtendedAgentCard", "GetAgentCard"] {
            assert_eq!(task_field(format!("{V10}{path}").as_bytes()), None);
        }
    }

    #[test]
    fn a_message_that_cannot_be_read_names_no_task() {
        let whole = framed(&field(2, b"T1"));
        assert_eq!(task(&whole, TaskField::Id(2)), Some(b"T1".as_slice()));
        for cut in 0..whole.len() {
            assert_eq!(task(whole.get(..cut).unwrap(), TaskField::Id(2)), None, "{cut}");
        }
        let compressed = [[1].as_slice(), whole.get(1..).unwrap()].concat();
        let huge = framed(&[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]);
        let group = framed(&[0x13, 0x14]);
        for body in [compressed, huge, group] {
            assert_eq!(task(&body, TaskField::Id(2)), None, "{body:?}");
        }
        let long = field_of(&vec![b'x'; MAX_ID_BYTES + 1]);
        assert_eq!(task(&long, TaskField::Id(2)), None);
    }

    /// Returns a request whose id has more than 127 bytes.
    fn field_of(id: &[u8]) -> Vec<u8> {
        let [low, high] = [id.len() % 128 + 128, id.len() / 128].map(|part| u8::try_from(part).unwrap());
        [[0, 0, 0, 0, 0, 0x12, low, high].as_slice(), id].concat()
    }
}
