//! State behind ports: SQL for what must be durable, memory or Redis for what must be fast.

/// Makes the failures of a backend an error of a port, by their text.
macro_rules! from_failure {
    ($failure:ty => $error:ident $(:: $variant:ident)?) => {
        impl From<$failure> for $error {
            fn from(failure: $failure) -> $error {
                $error $(:: $variant)? (failure.to_string())
            }
        }
    };
}

/// A query with its parameters, `$1` and following, like `sqlx::query!` but checked by tests only.
macro_rules! query {
    ($text:expr $(, $parameter:expr)* $(,)?) => {
        sqlx::query($text)$(.bind($parameter))*
    };
}

/// A statement on the tables of calls with its parameters, `$1` and following.
macro_rules! statement {
    ($text:expr $(, $parameter:expr)* $(,)?) => {
        $crate::calls::CallStatement::new($text)$(.bind($parameter))*
    };
}

pub mod answers;
pub mod approvals;
pub mod archive;
pub mod audit;
mod availability;
pub mod blobs;
pub mod briefs;
pub mod bus;
mod calls;
mod clock;
mod columns;
pub mod control;
pub mod counter;
mod database_error;
pub mod followers;
pub mod gateway_registry;
mod hex;
pub mod inbox;
pub mod ledger;
pub mod link;
pub mod linked_accounts;
pub mod live;
mod migrations;
pub mod outbox;
mod owner_files;
pub mod packages;
pub mod plugin_storage;
pub mod postgres;
mod private;
pub mod published_keys;
pub mod push;
pub mod records;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "s3")]
pub mod s3;
pub mod sessions;
pub mod sqlite;
pub mod usage;
