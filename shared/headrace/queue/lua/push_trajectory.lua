-- Accept the first attempt of a rollout per timeline; anything else goes on the stream as a record.
-- KEYS: 1 timeline, 2 seen, 3 stream, 4 recorded
-- ARGV: 1 timeline of the attempt, 2 rollout_id, 3 session_id, 4 "1" when it may be accepted,
--       5.. field/value pairs of the entry
-- Returns "accepted", "duplicate" (another attempt was first), "stale", "record", or, where nothing
-- was added, "repeated" (this session is on the stream already) or "closed" (the job has no stream).
if redis.call('EXISTS', KEYS[3]) == 0 then return 'closed' end
if redis.call('HGET', KEYS[2], ARGV[2]) == ARGV[3] then return 'repeated' end
if redis.call('SISMEMBER', KEYS[4], ARGV[3]) == 1 then return 'repeated' end
local verdict
if ARGV[4] ~= '1' then
  verdict = 'record'
elseif redis.call('GET', KEYS[1]) ~= ARGV[1] then
  verdict = 'stale'
elseif redis.call('HEXISTS', KEYS[2], ARGV[2]) == 1 then
  verdict = 'duplicate'
else
  verdict = 'accepted'
end
local entry = {}
for i = 5, #ARGV do entry[#entry + 1] = ARGV[i] end
entry[#entry + 1] = 'verdict'
entry[#entry + 1] = verdict
if verdict == 'accepted' then
  redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
else
  redis.call('SADD', KEYS[4], ARGV[3])
end
redis.call('XADD', KEYS[3], '*', unpack(entry))
return verdict
