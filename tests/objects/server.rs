//! An S3 server in this process, which counts requests and injects faults.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay::Session;
use forebay::object_store::aws::{AmazonS3Builder, S3ConditionalPut};
use forebay::object_store::{BackoffConfig, ObjectStore, RetryConfig};
#[cfg(feature = "cluster")]
use forebay_runtime::objects::ObjectStores;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{CONTENT_LENGTH, RANGE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, S3, S3Request, S3Response, S3Result, dto, s3_error};
use s3s_fs::FileSystem;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// The only credentials that the server accepts.
pub(crate) const KEY: &str = "test-access-key";
pub(crate) const SECRET: &str = "test-secret-of-the-server";

/// Name of the bucket.
pub(crate) const BUCKET: &str = "bucket";

/// An S3 server on a port of 127.0.0.1, with one bucket. It ends when the value is dropped.
pub(crate) struct Server {
    pub(crate) url: String,
    state: Arc<State>,
    folder: PathBuf,
    runtime: Option<Runtime>,
}

struct State {
    service: S3Service,
    /// Percentage of requests that fail.
    faults: AtomicU64,
    requests: AtomicU64,
    seen: Mutex<Vec<Seen>>,
    meeting: watch::Sender<Meeting>,
    /// Held while an object is written: `s3s-fs` checks the condition of a put and writes in two
    /// steps.
    writing: tokio::sync::Mutex<()>,
}

/// Two reads of objects that shall come beside each other.
#[derive(Debug, Default)]
struct Meeting {
    /// True if reads are held.
    is_held: bool,
    /// True if a read waits for another one.
    is_awaited: bool,
    /// True if another read has come while one was waiting.
    is_met: bool,
}

/// A request that the server answered.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: Method,
    /// The path below the bucket.
    pub(crate) key: String,
    pub(crate) is_list: bool,
    pub(crate) range: Option<String>,
    /// Size of the response.
    pub(crate) bytes: u64,
    /// True if the answer was a fault.
    pub(crate) is_fault: bool,
}

impl Server {
    /// Starts a server whose bucket has the files of `folder`.
    pub(crate) fn new(folder: &Path) -> Self {
        let root = folder.parent().unwrap();
        assert_eq!(folder.file_name().unwrap(), BUCKET);
        let files = FileSystem::new(root).unwrap();
        let mut service = S3ServiceBuilder::new(Amazon(files));
        service.set_auth(SimpleAuth::from_single(KEY, SECRET));
        let state = Arc::new(State {
            service: service.build(),
            faults: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            seen: Mutex::default(),
            meeting: watch::Sender::default(),
            writing: tokio::sync::Mutex::default(),
        });
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        #[expect(clippy::disallowed_methods, reason = "the server of a test")]
        runtime.spawn(serve(listener, Arc::clone(&state)));
        Self {
            url,
            state,
            folder: folder.to_path_buf(),
            runtime: Some(runtime),
        }
    }

    /// Has this percentage of requests fail.
    pub(crate) fn fail(&self, percent: u64) {
        self.state.faults.store(percent, Ordering::Relaxed);
    }

    /// Holds the next read of an object until another one comes beside it.
    pub(crate) fn hold(&self) {
        self.state.meeting.send_replace(Meeting {
            is_held: true,
            ..Meeting::default()
        });
    }

    /// True if a read came while the held one was waiting.
    pub(crate) fn have_met(&self) -> bool {
        self.state.meeting.borrow().is_met
    }

    /// Returns the requests since the last call.
    pub(crate) fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut self.state.seen.lock().unwrap())
    }

    /// Returns the path of an object's file.
    pub(crate) fn file(&self, key: &str) -> PathBuf {
        self.folder.join(key)
    }

    /// Returns a client with the server's credentials.
    fn client(&self) -> Arc<dyn ObjectStore> {
        let retries = RetryConfig {
            backoff: BackoffConfig {
                init_backoff: Duration::from_millis(2),
                max_backoff: Duration::from_millis(50),
                base: 2.0,
            },
            ..RetryConfig::default()
        };
        let client = AmazonS3Builder::new()
            .with_endpoint(&self.url)
            .with_allow_http(true)
            .with_bucket_name(BUCKET)
            .with_access_key_id(KEY)
            .with_secret_access_key(SECRET)
            .with_region("us-east-1")
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            .with_retry(retries);
        Arc::new(client.build().unwrap())
    }

    /// Returns object stores of which one is the bucket.
    #[cfg(feature = "cluster")]
    pub(crate) fn stores(&self) -> ObjectStores {
        let stores = ObjectStores::default();
        let root = format!("s3://{BUCKET}");
        stores.register(&root, self.client()).unwrap();
        stores
    }

    /// Creates a session that reads the bucket with the server's credentials.
    pub(crate) fn session(&self) -> Session {
        let session = Session::new();
        let root = format!("s3://{BUCKET}");
        session.register_object_store(&root, self.client()).unwrap();
        session
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn serve(listener: std::net::TcpListener, state: Arc<State>) {
    let listener = TcpListener::from_std(listener).unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let state = Arc::clone(&state);
        let answer = service_fn(move |request| {
            let state = Arc::clone(&state);
            async move { state.answer(request).await }
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(stream), answer);
        #[expect(clippy::disallowed_methods, reason = "the server of a test")]
        tokio::spawn(async move { drop(connection.await) });
    }
}

/// The ways in which a request fails.
enum Fault {
    Internal,
    SlowDown,
    /// The connection is closed without an answer.
    Reset,
    /// The connection is closed in the middle of the body.
    Cut,
}

impl State {
    /// Decides by the number of the request.
    fn fault(&self, method: &Method) -> Option<Fault> {
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let draw = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        if draw % 100 >= self.faults.load(Ordering::Relaxed) {
            return None;
        }
        Some(match (draw / 100) % 4 {
            0 => Fault::Internal,
            1 => Fault::SlowDown,
            2 if *method == Method::GET => Fault::Cut,
            _ => Fault::Reset,
        })
    }

    /// Waits for another read, if reads are held. A read that stays alone goes on after a while, so
    /// that a test fails and does not hang, and no other read is held.
    async fn meet(&self) {
        const ALONE: Duration = Duration::from_secs(10);
        let mut changes = self.meeting.subscribe();
        self.meeting.send_if_modified(|meeting| {
            let comes_second = meeting.is_held && meeting.is_awaited;
            if comes_second {
                (meeting.is_held, meeting.is_met) = (false, true);
            }
            meeting.is_awaited |= meeting.is_held;
            comes_second
        });
        let met = changes.wait_for(|meeting| !meeting.is_held);
        if tokio::time::timeout(ALONE, met).await.is_err() {
            self.meeting.send_modify(|meeting| meeting.is_held = false);
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Body>, s3s::HttpError> {
        let method = request.method().clone();
        let path = request.uri().path().trim_start_matches('/').to_owned();
        let range = request.headers().get(RANGE);
        let mut seen = Seen {
            key: path
                .strip_prefix(BUCKET)
                .unwrap_or(&path)
                .trim_start_matches('/')
                .to_owned(),
            is_list: request
                .uri()
                .query()
                .is_some_and(|query| query.contains("list-type")),
            range: range.map(|range| range.to_str().unwrap().to_owned()),
            bytes: 0,
            is_fault: false,
            method: method.clone(),
        };
        if method == Method::GET && !seen.is_list {
            self.meet().await;
        }
        let fault = self.fault(&method);
        seen.is_fault = fault.is_some();
        let refused = |status: u16, code: &str| {
            let body = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code></Error>");
            let body = Body::from(body);
            Response::builder().status(status).body(body).unwrap()
        };
        let (is_cut, early) = match fault {
            None => (false, None),
            Some(Fault::Cut) => (true, None),
            Some(Fault::Internal) => (false, Some(refused(500, "InternalError"))),
            Some(Fault::SlowDown) => (false, Some(refused(503, "SlowDown"))),
            Some(Fault::Reset) => {
                self.seen.lock().unwrap().push(seen);
                return Err(s3s::HttpError::new("the connection is closed".into()));
            }
        };
        let mut response = match early {
            Some(response) => response,
            None if method == Method::GET || method == Method::HEAD => {
                self.service.call(request.map(Body::from)).await?
            }
            None => {
                let _alone = self.writing.lock().await;
                self.service.call(request.map(Body::from)).await?
            }
        };
        let length = response.headers().get(CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().unwrap().parse().ok());
        seen.bytes = length.unwrap_or(0);
        if is_cut {
            seen.bytes /= 2;
            response = cut(response, seen.bytes).await;
        }
        self.seen.lock().unwrap().push(seen);
        Ok(response)
    }
}

/// Returns the response with a body that breaks off after `bytes` bytes.
async fn cut(response: Response<Body>, bytes: u64) -> Response<Body> {
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let start = body.slice(..body.len().min(bytes as usize));
    let broken = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    let frames: [Result<_, Box<dyn std::error::Error + Send + Sync>>; 2] =
        [Ok(hyper::body::Frame::data(start)), Err(broken.into())];
    let body = http_body_util::StreamBody::new(futures::stream::iter(frames));
    Response::from_parts(parts, Body::http_body_unsync(body))
}

/// `s3s-fs`, with two habits of Amazon's S3 that it lacks: listings have entity tags, and a read
/// obeys `If-Match`.
struct Amazon(FileSystem);

impl Amazon {
    async fn tag<T>(
        &self,
        request: S3Request<T>,
        bucket: &str,
        key: &str,
    ) -> S3Result<Option<dto::ETag>> {
        let input = dto::HeadObjectInput {
            bucket: bucket.to_owned(),
            key: key.to_owned(),
            ..dto::HeadObjectInput::default()
        };
        let request = request.map_input(|_| input);
        Ok(self.0.head_object(request).await?.output.e_tag)
    }
}

#[async_trait::async_trait]
impl S3 for Amazon {
    async fn get_object(
        &self,
        request: S3Request<dto::GetObjectInput>,
    ) -> S3Result<S3Response<dto::GetObjectOutput>> {
        let wanted = request.input.if_match.clone();
        let answer = self.0.get_object(request).await?;
        if let (Some(dto::ETagCondition::ETag(wanted)), Some(now)) = (wanted, &answer.output.e_tag)
            && !wanted.strong_cmp(now)
        {
            return Err(s3_error!(PreconditionFailed));
        }
        Ok(answer)
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<dto::ListObjectsV2Input>,
    ) -> S3Result<S3Response<dto::ListObjectsV2Output>> {
        let bucket = request.input.bucket.clone();
        let mut answer = self.0.list_objects_v2(request.clone()).await?;
        for object in answer.output.contents.iter_mut().flatten() {
            let key = object.key.clone().unwrap_or_default();
            object.e_tag = self.tag(request.clone(), &bucket, &key).await?;
        }
        Ok(answer)
    }

    async fn head_object(
        &self,
        request: S3Request<dto::HeadObjectInput>,
    ) -> S3Result<S3Response<dto::HeadObjectOutput>> {
        self.0.head_object(request).await
    }

    async fn put_object(
        &self,
        request: S3Request<dto::PutObjectInput>,
    ) -> S3Result<S3Response<dto::PutObjectOutput>> {
        self.0.put_object(request).await
    }

    async fn delete_object(
        &self,
        request: S3Request<dto::DeleteObjectInput>,
    ) -> S3Result<S3Response<dto::DeleteObjectOutput>> {
        self.0.delete_object(request).await
    }

    async fn delete_objects(
        &self,
        request: S3Request<dto::DeleteObjectsInput>,
    ) -> S3Result<S3Response<dto::DeleteObjectsOutput>> {
        self.0.delete_objects(request).await
    }
}
