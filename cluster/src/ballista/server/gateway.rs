//! Ballista's gRPC service of the scheduler, as it stands on the cluster's port: clients need the
//! token, and workers have one port.

use ballista_core::serde::protobuf::scheduler_grpc_server::SchedulerGrpc;
use ballista_core::serde::protobuf::{
    CancelJobParams, CancelJobResult, CleanJobDataParams, CleanJobDataResult,
    CreateUpdateSessionParams, CreateUpdateSessionResult, ExecuteQueryParams, ExecuteQueryResult,
    ExecutorRegistration, ExecutorStoppedParams, ExecutorStoppedResult, GetJobMetricsParams,
    GetJobMetricsResult, GetJobStatusParams, GetJobStatusResult, HeartBeatParams, HeartBeatResult,
    PollWorkParams, PollWorkResult, RegisterExecutorParams, RegisterExecutorResult,
    RemoveSessionParams, RemoveSessionResult, UpdateTaskStatusParams, UpdateTaskStatusResult,
};
use tonic::{Request, Response, Status};

use super::context::BallistaScheduler;
use crate::ballista::security::Credential;

/// Beginning of the ids of workers. A worker's executor listens on a loopback address, and the
/// worker passes tasks on to it from its own port.
pub(crate) const WORKER_PREFIX: &str = "forebay-";

/// Ballista's service, with the rules of the cluster.
pub(crate) struct BallistaGateway {
    pub(crate) ballista: BallistaScheduler,
    pub(crate) credential: Credential,
}

/// Sets the port of tasks to the one that other machines reach. Refuses a registration without the
/// parts that Ballista takes for granted.
fn corrected(registration: Option<&mut ExecutorRegistration>) -> Result<(), Status> {
    let Some(registration) = registration else {
        return Ok(());
    };
    if registration.specification.is_none() || registration.os_info.is_none() {
        return Err(Status::invalid_argument(
            "the registration of an executor needs its specification and its system",
        ));
    }
    if registration.host.as_ref().is_none_or(String::is_empty) {
        return Err(Status::invalid_argument(
            "the registration of an executor needs its host",
        ));
    }
    if [registration.port, registration.grpc_port]
        .iter()
        .any(|port| u16::try_from(*port).is_err())
    {
        return Err(Status::invalid_argument(
            "an executor's port is at most 65535",
        ));
    }
    if registration.id.starts_with(WORKER_PREFIX) {
        registration.grpc_port = registration.port;
    }
    Ok(())
}

#[tonic::async_trait]
impl SchedulerGrpc for BallistaGateway {
    type ExecuteQueryPushStream = <BallistaScheduler as SchedulerGrpc>::ExecuteQueryPushStream;

    async fn poll_work(
        &self,
        _: Request<PollWorkParams>,
    ) -> Result<Response<PollWorkResult>, Status> {
        Err(Status::unimplemented(
            "this scheduler gives tasks to executors by itself; start the executor in push mode",
        ))
    }

    async fn register_executor(
        &self,
        mut request: Request<RegisterExecutorParams>,
    ) -> Result<Response<RegisterExecutorResult>, Status> {
        corrected(request.get_mut().metadata.as_mut())?;
        self.ballista.register_executor(request).await
    }

    async fn heart_beat_from_executor(
        &self,
        mut request: Request<HeartBeatParams>,
    ) -> Result<Response<HeartBeatResult>, Status> {
        corrected(request.get_mut().metadata.as_mut())?;
        self.ballista.heart_beat_from_executor(request).await
    }

    async fn update_task_status(
        &self,
        request: Request<UpdateTaskStatusParams>,
    ) -> Result<Response<UpdateTaskStatusResult>, Status> {
        self.ballista.update_task_status(request).await
    }

    async fn executor_stopped(
        &self,
        request: Request<ExecutorStoppedParams>,
    ) -> Result<Response<ExecutorStoppedResult>, Status> {
        self.ballista.executor_stopped(request).await
    }

    async fn create_update_session(
        &self,
        request: Request<CreateUpdateSessionParams>,
    ) -> Result<Response<CreateUpdateSessionResult>, Status> {
        self.credential.check(request.metadata())?;
        self.ballista.create_update_session(request).await
    }

    async fn remove_session(
        &self,
        request: Request<RemoveSessionParams>,
    ) -> Result<Response<RemoveSessionResult>, Status> {
        self.credential.check(request.metadata())?;
        self.ballista.remove_session(request).await
    }

    async fn execute_query_push(
        &self,
        request: Request<ExecuteQueryParams>,
    ) -> Result<Response<Self::ExecuteQueryPushStream>, Status> {
        self.credential.check(request.metadata())?;
        self.ballista.execute_query_push(request).await
    }

    async fn execute_query(
        &self,
        request: Request<ExecuteQueryParams>,
    ) -> Result<Response<ExecuteQueryResult>, Status> {
        self.credential.check(request.metadata())?;
        self.ballista.execute_query(request).await
    }

    async fn get_job_status(
        &self,
        request: Request<GetJobStatusParams>,
    ) -> Result<Response<GetJobStatusResult>, Status> {
        self.credential.check(request.metadata())?;
        self.ballista.get_job_status(request).await
    }

    async fn get_job_metrics(
        &self,
        request: Request<GetJobMetricsParams>,
    ) -> Result<Response<GetJobMetricsResult>, Status> {
        self.credential.check(request.metadata())?;
        self.ballista.get_job_metrics(request).await
    }

    async fn cancel_job(
        &self,
        request: Request<CancelJobParams>,
    ) -> Result<Response<CancelJobResult>, Status> {
        self.credential.check(request.metadata())?;
        SchedulerGrpc::cancel_job(&self.ballista, request).await
    }

    async fn clean_job_data(
        &self,
        request: Request<CleanJobDataParams>,
    ) -> Result<Response<CleanJobDataResult>, Status> {
        self.credential.check(request.metadata())?;
        self.ballista.clean_job_data(request).await
    }
}
