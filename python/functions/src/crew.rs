//! The processes of a Python function, and one thread for each.
//!
//! All segments in flight put their chunks of rows into one queue, so every process is busy as long
//! as any segment has rows to compute.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;

use crate::frame::{Answer, decode_answer, encode};
use crate::process::{Pipes, Process, ending, start};
use crate::queue::{CrewError, Queue, RowChunk, lock};
use crate::settings::CrewSettings;

/// The worker processes of a Python function. The processes live as long as a run needs the
/// function.
#[derive(Debug)]
pub(crate) struct Crew {
    name: String,
    settings: CrewSettings,
    queue: Mutex<Queue>,
    changed: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// The reason why a process serves no further chunks. The flag is true if the process was lost,
/// false if the crew was closed. The chunk, if present, must be computed by another process.
struct Lost(bool, Option<RowChunk>);

impl Crew {
    /// Starts the processes, which are set up in parallel.
    pub(crate) fn start(name: &str, settings: CrewSettings) -> Result<Arc<Self>, CrewError> {
        let number = settings.processes;
        let crew = Arc::new(Self {
            name: name.to_owned(),
            settings,
            queue: Mutex::default(),
            changed: Condvar::new(),
            threads: Mutex::default(),
        });
        for _ in 0..number {
            let own = Arc::clone(&crew);
            let thread = Builder::new().name("forebay-udf".to_owned());
            let serve = move || {
                // Callers wait for the answers to queued chunks. So a thread that panics must
                // report to the callers that no answers will come.
                if catch_unwind(AssertUnwindSafe(|| own.serve())).is_err() {
                    let why = "a thread that hands rows to its worker processes panicked";
                    own.give_up(CrewError::Call(why.to_owned()));
                }
            };
            #[expect(
                clippy::disallowed_methods,
                reason = "a panic of the thread is caught, and reported to all callers"
            )]
            let started = thread.spawn(serve);
            match started {
                Ok(thread) => lock(&crew.threads).push(thread),
                Err(error) => {
                    crew.close();
                    return Err(CrewError::SetUp(format!("cannot start a thread: {error}")));
                }
            }
        }
        Ok(crew)
    }

    /// Computes chunks of rows in parallel. Returns the answers in the order of the chunks.
    pub(crate) fn compute(&self, chunks: Vec<RecordBatch>) -> Result<Vec<Answer>, CrewError> {
        let dropped = Arc::new(AtomicBool::new(false));
        let (to, from) = channel();
        let mut answers: Vec<Option<Answer>> = chunks.iter().map(|_| None).collect();
        {
            let mut queue = lock(&self.queue);
            if let Some(why) = queue.why_not() {
                return Err(why);
            }
            queue.latest = Some(Instant::now());
            let chunks = chunks.into_iter().enumerate();
            queue.chunks.extend(chunks.map(|(index, rows)| RowChunk {
                index,
                rows,
                to: to.clone(),
                losses: 0,
                dropped: Arc::clone(&dropped),
            }));
        }
        drop(to);
        self.changed.notify_all();
        for (index, answer) in from {
            match answer {
                Ok(answer) => answers[index] = Some(answer),
                Err(why) => {
                    dropped.store(true, Ordering::Relaxed);
                    return Err(why);
                }
            }
        }
        let answers: Option<Vec<Answer>> = answers.into_iter().collect();
        answers.ok_or_else(|| {
            let why = lock(&self.queue).why_not();
            let ended = || "its worker processes ended without an answer".to_owned();
            why.unwrap_or_else(|| CrewError::Call(ended()))
        })
    }

    /// The reason why no more answers will come: a process could not be set up, a thread panicked, or
    /// the processes ended because no rows came.
    pub(crate) fn broken(&self) -> Option<CrewError> {
        lock(&self.queue).broken.clone()
    }

    /// Returns the ids of the worker processes.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let queue = lock(&self.queue);
        queue
            .processes
            .iter()
            .map(|(process, _)| process.id)
            .collect()
    }

    /// Ends the processes, and waits until all have ended. Chunks that are not computed yet get no
    /// answer.
    pub(crate) fn close(&self) {
        let processes = {
            let mut queue = lock(&self.queue);
            queue.closed = true;
            queue.chunks.clear();
            queue.processes.clone()
        };
        self.changed.notify_all();
        for (process, _) in processes.iter().filter(|(_, busy)| *busy) {
            process.kill();
        }
        for (process, _) in processes.iter().filter(|(_, busy)| !busy) {
            process.end();
        }
        let threads = std::mem::take(&mut *lock(&self.threads));
        for thread in threads {
            // An error means that the thread panicked. The thread has reported this to the callers
            // already.
            let _ = thread.join();
        }
    }

    /// Passes chunks to a process until the crew is closed. A process that is lost is replaced.
    fn serve(&self) {
        let mut chunk = None;
        loop {
            chunk = match self.employ(chunk) {
                Ok(Lost(true, left)) => left,
                Ok(Lost(false, _)) => return,
                Err(why) => return self.give_up(why),
            };
            // The chunk that the lost process was computing has failed. The process is replaced
            // only if there is another chunk.
            chunk = chunk.or_else(|| self.next(None));
            if chunk.is_none() {
                return;
            }
        }
    }

    /// Starts a process and passes chunks to it, `first` before the chunks of the queue, until the
    /// process ends. Returns the chunk that was lost with the process. Fails if the process cannot
    /// be started.
    fn employ(&self, first: Option<RowChunk>) -> Result<Lost, CrewError> {
        let fail = |first: Option<RowChunk>, why: String| {
            let why = CrewError::SetUp(why);
            first.map(|chunk| chunk.to.send((chunk.index, Err(why.clone()))));
            Err(why)
        };
        let (process, mut pipes) =
            match start(&self.settings.command, self.settings.worker.is_some()) {
                Ok((process, pipes)) => (Arc::new(process), pipes),
                Err(error) => {
                    let program = self
                        .settings
                        .command
                        .first()
                        .map(|name| name.to_string_lossy());
                    let program = program.unwrap_or_default();
                    let why = format!("cannot start a worker process ({program}): {error}");
                    return fail(first, why);
                }
            };
        {
            let mut queue = lock(&self.queue);
            if queue.closed {
                drop(queue);
                process.kill();
                return Ok(Lost(false, None));
            }
            // `true` means busy: the process is still being set up.
            queue.processes.push((Arc::clone(&process), true));
        }
        let ready = pipes.greeted();
        let ready = ready.and_then(|()| pipes.ask(&self.settings.payload));
        self.pass_on(&process, &mut pipes);
        let worked = match ready {
            Ok(Ok(_)) => Ok(self.work(&process, &mut pipes, first)),
            Ok(Err(mistake)) => fail(first, mistake),
            Err(_) => fail(first, self.lost(&process).message()),
        };
        drop(pipes);
        process.end();
        let mut queue = lock(&self.queue);
        queue.processes.retain(|(p, _)| p.id != process.id);
        worked
    }

    /// Lets `process` compute one chunk after the other, `first` before the chunks of the queue,
    /// until the process is lost or the crew is closed.
    fn work(&self, process: &Process, pipes: &mut Pipes, first: Option<RowChunk>) -> Lost {
        let mut given = first;
        loop {
            let mut chunk = match given.take() {
                Some(chunk) => chunk,
                None => match self.next(Some(process)) {
                    None => return Lost(false, None),
                    // The process ended while idle, so this chunk is not at fault.
                    Some(chunk) if process.has_ended() => return Lost(true, Some(chunk)),
                    Some(chunk) => chunk,
                },
            };
            let failed = |why: String| Err(CrewError::Call(why));
            let answer = match encode(&chunk.rows) {
                Err(error) => failed(error.to_string()),
                Ok(request) => match pipes.ask(&request) {
                    Ok(Ok(bytes)) => {
                        decode_answer(&bytes, &self.name).or_else(|e| failed(e.to_string()))
                    }
                    Ok(Err(mistake)) => failed(mistake),
                    Err(_) => {
                        let lost = self.lost(process);
                        if self.is_tried_again(&mut chunk, &lost) {
                            self.pass_on(process, pipes);
                            return Lost(true, Some(chunk));
                        }
                        Err(lost)
                    }
                },
            };
            self.pass_on(process, pipes);
            let is_lost = answer.is_err();
            // An error is ignored: sending fails if the caller no longer waits for the answer.
            let _ = chunk.to.send((chunk.index, answer));
            if is_lost {
                return Lost(true, None);
            }
        }
    }

    /// Passes on what a process has printed.
    fn pass_on(&self, process: &Process, pipes: &mut Pipes) {
        if let Some(rules) = &self.settings.worker {
            rules.printed.add(&self.name, process.id, &pipes.printed());
        }
    }

    /// Notes that a process was lost with `chunk`. Returns `true` if another process computes its rows
    /// again.
    fn is_tried_again(&self, chunk: &mut RowChunk, lost: &CrewError) -> bool {
        let (Some(rules), CrewError::Call(why)) = (&self.settings.worker, lost) else {
            return false;
        };
        let is_tried_again = chunk.losses < rules.retries;
        let then = if is_tried_again {
            "another process computes its rows again"
        } else {
            "its rows ended several processes, and are not computed again"
        };
        chunk.losses += 1;
        rules.events.note(format!("{}: {why}; {then}", self.name));
        is_tried_again
    }

    /// Waits for the next chunk that a caller still needs; returns `None` once the crew is closed
    /// or broken.
    fn next(&self, process: Option<&Process>) -> Option<RowChunk> {
        let mut queue = lock(&self.queue);
        queue.mark(process, false);
        loop {
            if queue.why_not().is_some() {
                return None;
            }
            while let Some(chunk) = queue.chunks.pop_front() {
                if !chunk.dropped.load(Ordering::Relaxed) {
                    queue.mark(process, true);
                    return Some(chunk);
                }
            }
            queue = self.wait(queue);
        }
    }

    /// Waits for a change of the queue. The crew retires if no rows have come for long.
    fn wait<'a>(&'a self, mut queue: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
        let Some(idle) = self.settings.worker.as_ref().map(|rules| rules.idle) else {
            let waited = self.changed.wait(queue);
            return waited.unwrap_or_else(PoisonError::into_inner);
        };
        let since = queue
            .latest
            .map_or(Duration::ZERO, |latest| latest.elapsed());
        if since >= idle && queue.processes.iter().all(|(_, busy)| !busy) {
            queue.broken.get_or_insert(CrewError::Retired);
            self.changed.notify_all();
            return queue;
        }
        // Where others are busy, their last one looks again.
        let left = idle.saturating_sub(since).max(Duration::from_millis(100));
        let waited = self.changed.wait_timeout(queue, left);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Returns the error for a process that ended instead of answering.
    fn lost(&self, process: &Process) -> CrewError {
        if lock(&self.queue).closed {
            return CrewError::Ended;
        }
        CrewError::Call(format!(
            "its worker process {} {}",
            process.id,
            ending(process.end())
        ))
    }

    /// Answers all queued chunks with the error `why`, and stops the crew's work.
    fn give_up(&self, why: CrewError) {
        let mut queue = lock(&self.queue);
        for chunk in queue.chunks.drain(..) {
            let _ = chunk.to.send((chunk.index, Err(why.clone())));
        }
        queue.broken.get_or_insert(why);
        drop(queue);
        self.changed.notify_all();
    }
}
