//! Behaviour that no plugin should have.

use super::{
    DEAF, Duration, In, Ordering, Out, Pong, Sender, ServerMessage, Status, Value, Write, cancelled,
    completed, failed, json, mpsc, progress, raw, say,
};

/// Takes every byte of the disk that it can get, and every file.
pub(super) fn hoard(home: &std::path::Path) {
    for bytes in [16 << 10, 0] {
        let file = |number: usize| home.join(format!("{bytes}-{number}"));
        let _ = (0..).find(|number| std::fs::write(file(*number), vec![1; bytes]).is_err());
    }
}

pub(super) async fn misbehave(
    mode: &str,
    id: &str,
    out: &Sender,
    inbox: &mut mpsc::Receiver<In>,
    arguments: &Value,
) {
    match mode {
        "exit" => {
            if let Some(late) = arguments["late_ms"].as_u64() {
                raw::shut();
                // Otherwise its own end would follow the connection's.
                std::thread::sleep(Duration::from_millis(late));
            }
            std::process::exit(i32::try_from(arguments["code"].as_i64().unwrap_or(70)).unwrap_or(70))
        }
        "crash" => {
            say(out, progress(id, 1.0)).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
            std::process::abort();
        }
        "wedge" => {
            say(out, progress(id, 1.0)).await;
            tokio::task::yield_now().await;
            std::thread::sleep(Duration::from_secs(3600));
        }
        "memory" => {
            let mut hog = Vec::new();
            loop {
                hog.push(vec![1_u8; 8 << 20]);
                tokio::task::yield_now().await;
            }
        }
        "two" => {
            say(out, completed(id, &Value::Null)).await;
            say(out, completed(id, &Value::Null)).await;
        }
        "unknown" => say(out, progress("somebody-else", 1.0)).await,
        "empty" => {
            let _ = out.send(Ok(ServerMessage { payload: None })).await;
        }
        "oversize" => {
            let text = "x".repeat(5 << 20);
            say(out, completed(id, &json!({ "text": text }))).await;
        }
        "flood" => flood(id, out, inbox, arguments["count"].as_u64()).await,
        "deaf" => {
            DEAF.store(true, Ordering::Relaxed);
            say(out, progress(id, 1.0)).await;
            for nonce in 0_u64.. {
                say(out, Out::Pong(Pong { nonce: nonce.to_string() })).await;
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        }
        "pongs" => loop {
            say(out, Out::Pong(Pong::default())).await;
        },
        "end" => {
            let _ = out.send(Err(Status::internal("enough"))).await;
        }
        _ if raw::write(mode) => std::future::pending::<()>().await,
        _ => say(out, failed(id, "INVALID_ARGUMENT")).await,
    }
}

/// Sends events for ever; or the given number, and then waits for its cancel.
pub(super) async fn flood(id: &str, out: &Sender, inbox: &mut mpsc::Receiver<In>, count: Option<u64>) {
    for _ in 0..count.unwrap_or(u64::MAX) {
        say(out, progress(id, 1.0)).await;
    }
    cancelled(inbox).await;
    say(out, failed(id, "CANCELLED")).await;
}

/// Writes a mebibyte a second in lines of one letter each.
pub(super) async fn tiny_lines(id: &str, out: &Sender, milliseconds: u64) {
    let lines = b"x\n".repeat(8 << 10);
    say(out, progress(id, 1.0)).await;
    for _ in 0..milliseconds / 16 {
        let _ = std::io::stdout().write_all(&lines);
        let _ = std::io::stdout().flush();
        tokio::time::sleep(Duration::from_millis(16)).await;
    }
    say(out, completed(id, &Value::Null)).await;
}
