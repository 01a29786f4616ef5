//! Rules for requests that arrive as protocol buffers; the readers of JSON check the same while they read.

use asp_platform::secret::Secret;

use crate::bounds::{MAX_ID, MAX_LISTED, MAX_NAME, MAX_PAGE, MAX_PARTS, MAX_TOKEN, MAX_URL};
use crate::error::{A2aFailure, FieldViolation};
use crate::model::{Message, PartContent, PushConfig, Role, SendRequest};

/// Faults of one request.
#[derive(Default)]
pub(super) struct Check(Vec<FieldViolation>);

impl Check {
    pub(super) fn fault(&mut self, field: impl Into<String>, description: impl Into<String>) {
        self.0.push(FieldViolation { field: field.into(), description: description.into() });
    }

    /// Returns the value, or the faults.
    pub(super) fn finish<T>(self, value: T) -> Result<T, A2aFailure> {
        if self.0.is_empty() { Ok(value) } else { Err(A2aFailure::invalid(self.0)) }
    }

    fn line(&mut self, field: &str, text: &str, most: usize) {
        if text.len() > most {
            self.fault(field, format!("must have at most {most} bytes"));
        }
        if text.chars().any(char::is_control) {
            self.fault(field, "must not have control characters");
        }
    }

    pub(super) fn id(&mut self, field: &str, id: &str) {
        if id.is_empty() {
            self.fault(field, "is required");
        }
        self.line(field, id, MAX_ID);
    }

    pub(super) fn option(&mut self, field: &str, id: Option<&str>) {
        self.line(field, id.unwrap_or_default(), MAX_ID);
    }

    pub(super) fn token(&mut self, field: &str, token: &str) {
        self.line(field, token, MAX_TOKEN);
    }

    /// Returns a count that may not be negative.
    pub(super) fn count(&mut self, field: &str, number: Option<i32>) -> Option<u32> {
        let number = number?;
        let count = u32::try_from(number).ok();
        if count.is_none() {
            self.fault(field, format!("must not be negative, got {number}"));
        }
        count
    }

    pub(super) fn page_size(&mut self, size: Option<i32>) -> Option<u32> {
        if let Some(size) = size.filter(|size| !(1..=MAX_PAGE).contains(size)) {
            self.fault("page_size", format!("must be between 1 and {MAX_PAGE}, got {size}"));
        }
        size.and_then(|size| u32::try_from(size).ok())
    }

    pub(super) fn send(&mut self, request: &SendRequest) {
        self.message(&request.message);
        let configuration = &request.configuration;
        self.list("configuration.accepted_output_modes", &configuration.accepted_output_modes, MAX_NAME);
        if let Some(push) = &configuration.push {
            self.push("configuration.push", push);
        }
    }

    fn message(&mut self, message: &Message) {
        self.id("message.message_id", &message.message_id);
        self.option("message.context_id", message.context_id.as_deref());
        self.option("message.task_id", message.task_id.as_deref());
        if message.role == Role::Unspecified {
            self.fault("message.role", "is required");
        }
        if message.parts.is_empty() {
            self.fault("message.parts", "must have at least one valid part");
        }
        if message.parts.len() > MAX_PARTS {
            self.fault("message.parts", format!("must have at most {MAX_PARTS} elements"));
        }
        for part in &message.parts {
            self.line("message.parts.media_type", part.media_type.as_deref().unwrap_or_default(), MAX_NAME);
            self.line("message.parts.filename", part.filename.as_deref().unwrap_or_default(), MAX_NAME);
            if let PartContent::Url(url) = &part.content {
                self.line("message.parts.url", url, MAX_URL);
            }
        }
        self.list("message.extensions", &message.extensions, MAX_URL);
        self.list("message.reference_task_ids", &message.reference_task_ids, MAX_ID);
    }

    fn list(&mut self, field: &str, values: &[String], length: usize) {
        if values.len() > MAX_LISTED {
            self.fault(field, format!("must have at most {MAX_LISTED} elements"));
        }
        if values.iter().any(|value| value.len() > length) {
            self.fault(field, format!("must have elements of at most {length} bytes"));
        }
    }

    pub(super) fn push(&mut self, field: &str, push: &PushConfig) {
        let inner = |name: &str| format!("{field}.{name}");
        if push.url.is_empty() {
            self.fault(inner("url"), "is required");
        }
        self.line(&inner("url"), &push.url, MAX_URL);
        self.option(&inner("id"), push.id.as_deref());
        let token = push.token.as_ref().map(Secret::expose);
        self.line(&inner("token"), token.unwrap_or_default(), MAX_TOKEN);
        let Some(authentication) = &push.authentication else { return };
        if authentication.schemes.is_empty() {
            self.fault(inner("authentication.scheme"), "is required");
        }
        self.list(&inner("authentication.scheme"), &authentication.schemes, MAX_NAME);
        for scheme in &authentication.schemes {
            self.line(&inner("authentication.scheme"), scheme, MAX_NAME);
        }
        let credentials = authentication.credentials.as_ref().map(Secret::expose);
        self.line(&inner("authentication.credentials"), credentials.unwrap_or_default(), MAX_TOKEN);
    }
}
