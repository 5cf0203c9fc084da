-- Accept the first attempt of a rollout per timeline; anything else goes on the stream as a record.
-- KEYS: 1 timeline, 2 seen, 3 stream
-- ARGV: 1 timeline of the attempt, 2 rollout_id, 3 session_id, 4 "1" when it may be accepted,
--       5.. field/value pairs of the entry
-- Returns "accepted", "duplicate" (another attempt was first), "repeated" (this session is on the
-- stream already, nothing was added), "stale" or "record".
local current = redis.call('GET', KEYS[1])
local verdict
if ARGV[4] ~= '1' then
  verdict = 'record'
elseif current ~= ARGV[1] then
  verdict = 'stale'
else
  local first = redis.call('HGET', KEYS[2], ARGV[2])
  if first == false then
    verdict = 'accepted'
  elseif first == ARGV[3] then
    return 'repeated'
  else
    verdict = 'duplicate'
  end
end
local entry = {}
for i = 5, #ARGV do entry[#entry + 1] = ARGV[i] end
entry[#entry + 1] = 'verdict'
entry[#entry + 1] = verdict
if verdict == 'accepted' then redis.call('HSET', KEYS[2], ARGV[2], ARGV[3]) end
redis.call('XADD', KEYS[3], '*', unpack(entry))
return verdict
