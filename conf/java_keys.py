"""The keys that a Java broker 5.3.3 knows and this one takes without doing anything.

They stand here with the type and the default that they have in Java (`key=default`, a bare key
for null), so that a `broker.conf` from there can be read, checked and shown whole. Where Java
computes a default from its processors, this is what four of them give. In the order of Java's
classes: BrokerConfig, NettyServerConfig, NettyClientConfig, MessageStoreConfig, AuthConfig.
"""

from collections.abc import Iterable

_TABLE = (
    (
        "String",
        """
    brokerConfigPath  rocketmqHome  messageStorePlugIn=
    configBlackList=configBlackList;brokerConfigPath  configManagerVersion=v1
    """,
    ),
    (
        "boolean",
        """
    recoverConcurrently=false  fetchNameSrvAddrByDnsLookup=false
    fetchNamesrvAddrByAddressServer=false  highSpeedMode=false  accountStatsEnable=true
    accountStatsPrintZeroValues=true  transferMsgByHeap=true
    disableConsumeIfConsumerReadSlowly=false  brokerFastFailureEnable=true
    enableCalcFilterBitMap=false
    compressedRegister=false  forceRegister=true
    enableNetWorkFlowControl=false  enableBroadcastOffsetStore=true  enableSkipLongAwaitingAck=false
    enablePopLog=false  enablePopBatchAck=false
    enableNotifyBeforePopCalculateLag=true  enableNotifyAfterPopOrderLockRelease=true
    popConsumerFSServiceInit=true  popConsumerKVServiceLog=false
    popConsumerKVServiceInit=false  popConsumerKVServiceEnable=false
    realTimeNotifyConsumerChange=true
    aclEnable=false  enableDetailStat=true  autoDeleteUnusedStats=true
    isolateLogEnable=false
    asyncSendEnable=true  lockInStrictMode=false
    compatibleWithOldNameSrv=true  fetchControllerAddrByDnsLookup=false
    useStaticSubscription=false
    coldCtrStrategyEnable=false  usePIDColdCtrStrategy=true
    enableFastChannelEventProcess=false  printChannelGroups=false
    skipWhenCKRePutReachMaxTimes=false  appendAckAsync=false  appendCkAsync=false
    clearRetryTopicWhenDeleteTopic=true  enableLmqStats=false
    enableRegisterProducer=true
    enableCreateSysGroup=true  isBrokerContainer=false  isInBrokerContainer=false  inBrokerContainer
    """,
    ),
    (
        "int",
        """
    sendMessageThreadPoolNums=4  putMessageFutureThreadPoolNums=4  pullMessageThreadPoolNums=24
    litePullMessageThreadPoolNums=24  ackMessageThreadPoolNums=16
    processReplyMessageThreadPoolNums=24  queryMessageThreadPoolNums=12
    adminBrokerThreadPoolNums=16  clientManageThreadPoolNums=32  consumerManageThreadPoolNums=32
    loadBalanceProcessorThreadPoolNums=32  heartbeatThreadPoolNums=4  recoverThreadPoolNums=32
    endTransactionThreadPoolNums=16  flushConsumerOffsetHistoryInterval=60000
    sendThreadPoolQueueCapacity=10000  putThreadPoolQueueCapacity=10000
    pullThreadPoolQueueCapacity=100000  litePullThreadPoolQueueCapacity=100000
    ackThreadPoolQueueCapacity=100000  replyThreadPoolQueueCapacity=10000
    queryThreadPoolQueueCapacity=20000  clientManagerThreadPoolQueueCapacity=1000000
    consumerManagerThreadPoolQueueCapacity=1000000  heartbeatThreadPoolQueueCapacity=50000
    endTransactionPoolQueueCapacity=100000  adminBrokerThreadPoolQueueCapacity=10000
    loadBalanceThreadPoolQueueCapacity=100000  commercialBaseCount=1  commercialSizePerMsg=4096
    maxStatsIdleTimeInMinutes=-1  registerBrokerTimeoutMills=24000
    updateNameServerAddrPeriod=120000
    popPollingMapSize=100000
    popReviveMaxReturnSizePerRead=16384
    popReviveMaxAttemptTimes=16  cleanOfflineBrokerInterval=30000
    metricsOtelCardinalityLimit=50000  printChannelGroupsMinNum=5
    """,
    ),
    (
        "long",
        """
    consumerFallbehindThreshold=17179869184  waitTimeMillsInSendQueue=200
    waitTimeMillsInPullQueue=5000  waitTimeMillsInLitePullQueue=5000
    waitTimeMillsInHeartbeatQueue=31000  waitTimeMillsInTransactionQueue=3000
    waitTimeMillsInAckQueue=3000  waitTimeMillsInAdminBrokerQueue=5000
    startAcceptSendRequestTimeStamp=0
    broadcastOffsetExpireSecond=120
    broadcastOffsetExpireMaxSecond=300
    reviveMaxSlow=3  reviveScanTime=10000  reviveAckWaitMs=180000
    popLongPollingForceNotifyInterval=800
    consumerOffsetUpdateVersionStep=500  delayOffsetUpdateVersionStep=200
    checkSyncStateSetPeriod=5000  syncControllerMetadataPeriod=10000
    subscriptionExpiredTimeout=600000
  fetchNamesrvAddrInterval=10000
    """,
    ),
    (
        "int",
        """
    serverWorkerThreads=8  serverCallbackExecutorThreads=0  serverSelectorThreads=3
    serverOnewaySemaphoreValue=256  serverAsyncSemaphoreValue=64  serverSocketSndBufSize=0
    serverSocketRcvBufSize=0  writeBufferHighWaterMark=0  writeBufferLowWaterMark=0
    serverSocketBacklog=1024  shutdownWaitTimeSeconds=30
    """,
    ),
    (
        "boolean",
        """
    serverNettyWorkerGroupEnable=true  serverPooledByteBufAllocatorEnable=true
    enableShutdownGracefully=false  useEpollNativeSelector=false
    """,
    ),
    (
        "int",
        """
    clientWorkerThreads=4  clientCallbackExecutorThreads=4  clientOnewaySemaphoreValue=65535
    clientAsyncSemaphoreValue=65535  connectTimeoutMillis=3000  clientChannelMaxIdleTimeSeconds=120
    clientSocketSndBufSize=0  clientSocketRcvBufSize=0
    """,
    ),
    (
        "long",
        """
    channelNotActiveInterval=60000  maxReconnectIntervalTimeSeconds=60
    """,
    ),
    (
        "boolean",
        """
    isScanAvailableNameSrv=true  clientPooledByteBufAllocatorEnable=false
    clientCloseSocketIfTimeout=true  disableCallbackExecutor=false
    disableNettyWorkerGroup=false  enableReconnectForGoAway=true  scanAvailableNameSrv
    """,
    ),
    (
        "String",
        """
    socksProxyConfig={}
    """,
    ),
    (
        "String",
        """
    storePathDLedgerCommitLog  storePathEpochFile  storePathBrokerIdentity
    readOnlyCommitLogStorePaths  timerCheckMetricsWhen=05  storeType=default
    dLegerGroup  dLegerPeers  dLegerSelfId  preferredLeaderId
    bottomMostCompressionTypeForConsumeQueueStore=zstd  rocksdbCompressionType=lz4
    """,
    ),
    (
        "int",
        """
    compactionMappedFileSize=104857600  compactionCqMappedFileSize=10485760
    compactionScheduleInternal=900000  maxOffsetMapSize=104857600  compactionThreadNum=6
    timerGetMessageThreadNum=3  timerPutMessageThreadNum=3
    disappearTimeAfterStart=-1
    timerMetricSmallThreshold=1000000  timerProgressLogIntervalMs=10000
    bitMapLengthConsumeQueueExt=64  commitIntervalCommitLog=200  maxRecoveryCommitlogFiles=30
    putMsgIndexHightWater=600000  flushCommitLogLeastPages=4
    commitCommitLogLeastPages=4  flushLeastPagesWhenWarmMapedFile=4096
    flushConsumeQueueLeastPages=2  flushCommitLogThoroughInterval=10000
    commitCommitLogThoroughInterval=200  maxMsgsNumBatch=64
    putMessageTimeout=8000  transientStorePoolSize=5
    scheduleAsyncDeliverMaxPendingLimit=2000
    scheduleAsyncDeliverMaxResendNum2Blocked=3  maxBatchDeleteFilesNum=50  dispatchCqThreads=10
    dispatchCqCacheNum=4096  maxTopicLength=127  travelCqFileNumWhenGetMessage=1
    correctLogicMinOffsetSleepInterval=1  correctLogicMinOffsetForceInterval=300000
    commitLogSwapMapReserveFileNum=100  logicQueueSwapMapReserveFileNum=20
    maxAsyncPutMessageRequests=5000  pullBatchMaxMessageCount=160  totalReplicas=1
    replicasPerDiskPartition=1  maxConsumeQueueScan=20000
    sampleCountThreshold=5000  timerColdDataCheckIntervalMs=60000  sampleSteps=32
  batchDispatchRequestThreadPoolNums=16  topicQueueLockNum=32
    rocksdbFlushWalFrequency=1024  spinLockCollisionRetreatOptimalDegree=1000
    """,
    ),
    (
        "boolean",
        """
    enableCompaction=true  timerEnableDisruptor=false  timerEnableCheckMetrics=true
    timerInterceptDelayLevel=false  timerStopEnqueue=false
    timerSkipUnknownError=false  timerWarmEnable=false  timerStopDequeue=false
    timerEnableRetryUntilSuccess=false  enableConsumeQueueExt=false
    useReentrantLockWhenPutMessage=true  flushCommitLogTimed=true  checkCRCOnRecover=true
    messageIndexSafe=false  warmMapedFileEnable=false  offsetCheckInSlave=false
    debugLockEnable=false  duplicationEnable=false  diskFallRecorded=true
    transientStorePoolEnable=false  fastFailIfNoBufferInStorePool=false  enableDLegerCommitLog=false
    enableBatchPush=false  enableScheduleMessageStats=true
    enableScheduleAsyncDeliver=false  enableAsyncReput=true
    recheckReputOffsetFromCq=false  autoMessageVersionOnTopicLen=true
    forceVerifyPropCRC=false  mappedFileSwapEnable=true  searchBcqByCacheEnable=true
    dispatchFromSenderThread=false  wakeCommitWhenPutMessage=true  wakeFlushWhenPutMessage=false
    enableCleanExpiredOffset=false
    haFlowControlEnable=false  syncMasterFlushOffsetWhenStartup=false
  enableBuildConsumeQueueConcurrently=false
    realTimePersistRocksDBConfig=true  enableRocksDBLog=false  readUnCommitted=false
    putConsumeQueueDataByFileChannel=true  rocksdbCQDoubleWriteEnable=false  useABSLock=false
    """,
    ),
    (
        "long",
        """
    osPageCacheBusyTimeOutMills=1000  commitLogForceSwapMapInterval=43200000
    commitLogSwapMapInterval=3600000  logicQueueForceSwapMapInterval=43200000
    logicQueueSwapMapInterval=3600000  cleanSwapedMapInterval=300000
    maxHaTransferByteInSecond=104857600  maxChecksumRange=1073741824
    maxSlaveResendLength=268435456  cleanRocksDBDirtyCQIntervalMin=60  statRocksDBCQIntervalSec=10
    memTableFlushIntervalMs=3600000  rocksdbWalFileRollingThreshold=1073741824
    """,
    ),
    (
        "double",
        """
    logicalDiskSpaceCleanForciblyThreshold=0.8
    """,
    ),
)

# A real broker reads these but leaves them out of what GET_BROKER_CONFIG answers.
_AUTH_TABLE = (
    (
        "String",
        """
    configName  clusterName  authConfigPath  authenticationProvider  authenticationStrategy
    authorizationProvider  authorizationStrategy
    """,
    ),
    (
        "boolean",
        """
    migrateAuthFromV1Enabled=false
    """,
    ),
    (
        "int",
        """
    userCacheMaxNum=1000  userCacheExpiredSecond=600  userCacheRefreshSecond=60  aclCacheMaxNum=1000
    aclCacheExpiredSecond=600  aclCacheRefreshSecond=60  statefulAuthenticationCacheMaxNum=10000
    statefulAuthenticationCacheExpiredSecond=60  statefulAuthorizationCacheMaxNum=10000
    statefulAuthorizationCacheExpiredSecond=60
    """,
    ),
)


def _keys(table: Iterable[tuple[str, str]]) -> dict[str, tuple[str, str | None]]:
    found: dict[str, tuple[str, str | None]] = {}
    for kind, entries in table:
        for entry in entries.split():
            key, equals, default = entry.partition("=")
            found[key] = (kind, default if equals else None)
    return found


# Of the same class, but with an effect here: a broker's settings declare them.
_USED_AUTH_KEYS = {
    "authenticationEnabled",
    "authenticationMetadataProvider",
    "authenticationWhitelist",
    "authorizationEnabled",
    "authorizationMetadataProvider",
    "authorizationWhitelist",
    "initAuthenticationUser",
    "innerClientAuthenticationCredentials",
}

AUTH_KEYS = frozenset(_keys(_AUTH_TABLE)) | _USED_AUTH_KEYS
# Key to Java type (String, boolean, int, long, double) and default.
JAVA_KEYS = _keys(_TABLE + _AUTH_TABLE)
