--[[
sbatch refuses a batch script whose #FP lines have mistakes, in the words of fp-job check (fp-job(1), ON A SITE).

Slurm's controller calls these functions when burst_buffer.conf says Directive=FP, for jobs that have #FP lines and for no others. It waits for
slurm_bb_job_process while other users wait for it, so that has a limit, and whatever keeps fp-job from an answer lets the job in: the script is checked
again when its store is started. It looks at words alone (--words): the controller is another user on another machine, and must neither load a user's plugin
nor look for his files.

All other functions are those that Slurm wants to be there. They do nothing: nodes start the store of a job, not the controller.
--]]

local FP_JOB = "fp-job" -- with its path, if slurmctld does not find it
local SECONDS = 3

-- The argument as one word of the shell.
local function quoted(word)
    return "'" .. word:gsub("'", "'\\''") .. "'"
end

-- What fp-job says of the script, and its exit code; nil: it could not be asked. Slurm keeps a script with a zero byte at its end, and Lua 5.1 keeps exit
-- codes to itself, so that the code stands behind the text.
local function check(script)
    local pipe = io.popen("tr -d '\\000' < " .. quoted(script) .. " | timeout -s KILL " .. SECONDS .. " " .. quoted(FP_JOB) .. " check --words - 2>/dev/null; echo $?")
    if not pipe then
        return nil
    end
    local text = pipe:read("*a")
    pipe:close()
    local said, code = text:match("^(.-)(%d+)\n$")
    return said, tonumber(code)
end

function slurm_bb_job_process(script)
    local said, code = check(script)
    if code == 1 and said:find("error: ", 1, true) then
        return slurm.ERROR, "the #FP lines of the script have mistakes (line:column):\n" .. said:gsub("^%-:", ""):gsub("\n%-:", "\n"):gsub("\n$", "")
    end
    if code ~= 0 then
        slurm.log_error("burst_buffer.lua: %s", "fp-job check ended with " .. tostring(code) .. ": #FP lines are not checked at submit")
    end
    return slurm.SUCCESS
end

-- There are no pools: what else than a list of them stood behind this would be an error in the controller's log.
function slurm_bb_pools()
    return slurm.SUCCESS
end

function slurm_bb_real_size()
    return slurm.SUCCESS, "0"
end

local function nothing()
    return slurm.SUCCESS, ""
end

slurm_bb_setup = nothing
slurm_bb_data_in = nothing
slurm_bb_test_data_in = nothing
slurm_bb_paths = nothing
slurm_bb_pre_run = nothing
slurm_bb_post_run = nothing
slurm_bb_data_out = nothing
slurm_bb_test_data_out = nothing
slurm_bb_job_teardown = nothing
slurm_bb_get_status = nothing
